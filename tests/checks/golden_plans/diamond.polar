# Each level asks for two things of the level below it, which leads to the same things again and again.
actor User {}
resource T0 { roles = ["r"]; permissions = ["read"]; relations = { left: T1, right: T1 }; "r" if "r" on "left" or "r" on "right"; "read" if "r"; }
resource T1 { roles = ["r"]; relations = { left: T2, right: T2 }; "r" if "r" on "left" and "r" on "right"; }
resource T2 { roles = ["r"]; relations = { left: T3, right: T3 }; "r" if "r" on "left" or "r" on "right"; }
resource T3 { roles = ["r"]; relations = { left: T4, right: T4 }; "r" if "r" on "left" and "r" on "right"; }
resource T4 { roles = ["r"]; relations = { left: T5, right: T5 }; "r" if "r" on "left" or "r" on "right"; }
resource T5 { roles = ["r"]; }
