# a



# b