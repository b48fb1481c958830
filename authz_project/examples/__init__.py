"""Complete worlds to look at and to start from: each a policy with tests, facts, and questions worth trying.

`examples()` lists them, and `load` gives one to an environment. A world is two files in `worlds/`: its policy, and a
module that says who is in it. `example.py` says what a world is, and loads it.
"""

from authz_project.examples.example import Example, ExampleQuestion, LoadedExample, NotEmpty, load
from authz_project.examples.worlds import example_named, examples

__all__ = ["Example", "ExampleQuestion", "LoadedExample", "NotEmpty", "example_named", "examples", "load"]
