"""Read models, tuples and store files, as OpenFGA and its command line write them."""
