actor User {}
resource Doc {}
declare is_public(Doc);
declare is_public(Doc, Boolean);
declare limit(Integer, String, Boolean);
declare likes(Actor, Resource);
