"""From a connection to whoever answers, and back.

`process` runs the workers and hands over what arrives, until `signals` hears that it is to stop; `intake` decides whose
body is read, and how much of it; `reading` reads it, in time or not at all; `slots` has threads that answer, and more
of them while some take long; `changes` has others for changes that wait for one another, `waiting` others for those who
wait for changes; `exchange` has it answered.
"""
