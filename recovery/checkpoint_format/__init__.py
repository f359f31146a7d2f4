"""Spark's files on disk, read without a JVM. Only this room knows their format.

Each kind of file has one parser. It returns a frozen value or raises `UnreadableCheckpoint`. A
missing file raises `FileNotFoundError`: a running query removes old files, so look again.

===========================  ==============  =====================================================
file                         module          known versions
===========================  ==============  =====================================================
``metadata``                 `metadata`      it names none
``offsets/N``                `offset_log`    v1; v2, of sources with names, from Spark 4.2 on
``commits/N``                `commit_log`    v1; v2, of state in format 2, from Spark 4.0 on; v3, of
                                             sinks with names, of Spark 4.3
``sources/K/N[.compact]``    `file_logs`     v1
``_spark_metadata/N[…]``     `file_logs`     v1
``state/…/N[_ID].zip``       `state_files`   v1; v2, of state in format 2, of Spark 4.0
===========================  ==============  =====================================================

A file of any other version raises `UnreadableCheckpoint`, which names the version. The tests read
every file that PySpark 4.0, 4.1 and 4.3 wrote into ``tests/fixtures/checkpoints``.
"""
