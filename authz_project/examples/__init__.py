"""Complete examples to explore and to start from: policies with tests, facts, and checks to try.

`examples()` lists them, and `load` loads one into an environment. An example has two files in `worlds/`: its policy,
and a module that writes its facts. `example.py` defines what an example is, and loads it.
"""

from authz_project.examples.example import Example, ExampleQuestion, LoadedExample, NotEmpty, load
from authz_project.examples.worlds import example_named, examples

__all__ = ["Example", "ExampleQuestion", "LoadedExample", "NotEmpty", "example_named", "examples", "load"]
