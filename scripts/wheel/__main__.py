"""python -m metaformer"""
from metaformer import main

main()
