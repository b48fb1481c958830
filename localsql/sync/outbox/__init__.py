"""Changes that an application writes down in its own transactions, each made here exactly once.

`tables` reads and empties the application's table, `remembered` keeps what is made in ours, and `drain` goes from one
to the other. No transaction spans both databases. So a row is remembered by the transaction that makes its change, then
deleted there, and then forgotten: whoever comes after an interruption first deletes what is remembered.

Rows are not read up to a highest id. Ids are given before their transactions commit, in another order than they commit
in, and a row with a lower id may come to be seen later; it is there then, and is read.
"""
