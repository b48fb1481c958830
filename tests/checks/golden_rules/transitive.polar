resource Box {}

inside(x: Box, z: Box) if inside(x, y) and inside(y, z);
inside(x: Box, y: Box) if y matches Box and put_into(x, y);
