"""Changes that an application writes down in its own transactions, each made here exactly once.

`tables` reads and empties the application's table, `drained_rows` keeps in our database which rows are made, and
`drain` goes from one to the other. No transaction spans both databases. So three steps follow each other: the
transaction that makes a row's change remembers the row; the row is deleted from the outbox; the row is forgotten. After
an interruption, the next process first deletes the rows that are remembered.

No highest id is kept to read on from. Ids are given before transactions commit, in another order than these commit in,
so a row with a lower id may become visible later. It is in the table then, and is read.
"""
