actor User {}
resource Repo { roles = ["reader", "writer"]; "reader" if "writer"; }
