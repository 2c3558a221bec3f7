include a.mk
x:
