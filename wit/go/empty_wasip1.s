// Empty: the compiler takes a function without a body, sbrk, only in a package with assembly.
