"""Where the files of jobs are: a folder, or objects of a store such as S3.

A folder is enough where all masters have it. With objects, each host keeps only copies: whatever
counts is an object that a record names (see `jrs.records.objects`), and nothing that counts is
renamed, overwritten or taken from a listing.
"""
