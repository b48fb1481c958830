"""From a connection to whoever answers, and back.

`process` runs the workers and hands over what arrives; `intake` decides whose body is read, and how much of it;
`reading` reads it, in time or not at all; `slots` bounds how many threads are busy, and lends each a connection;
`exchange` has it answered.
"""
