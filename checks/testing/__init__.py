"""Run the tests of policies (`policy_tests`), and report the results for people and for other programs (`reports`)."""
