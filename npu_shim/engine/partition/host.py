"""Why ops stay on the host for which the interpreter has no rule, or one for programs of several ranks alone."""

GIVES_AS_MANY = "the size of its result depends on data"
LOOKS_UP = "it looks up a table on the host"
BRINGS_DATA = "it loads data on the host"
HAS_STRINGS = "it works on strings"
DRAWS = "it draws until enough numbers differ, from a generator of its own"
BY_THREADS = "what it draws depends on how many threads there are"
RUNS_PYTHON = "it runs Python"
MEETS = "the workers meet in it"

HOST = {
    **dict.fromkeys(
        ["AllCandidateSampler", "FixedUnigramCandidateSampler", "LearnedUnigramCandidateSampler",
         "LogUniformCandidateSampler", "ThreadUnsafeUnigramCandidateSampler", "UniformCandidateSampler"], DRAWS,
    ),
    **dict.fromkeys(["ParameterizedTruncatedNormal", "StatelessParameterizedTruncatedNormal"], BY_THREADS),
    **dict.fromkeys(["PyFunc", "PyFuncStateless", "EagerPyFunc"], RUNS_PYTHON),
    **dict.fromkeys(["CollectiveAllToAllV2", "CollectiveGather", "CollectiveReduce"], MEETS),
    **dict.fromkeys(
        ["CTCBeamSearchDecoder", "CombinedNonMaxSuppression", "EditDistance", "NonMaxSuppressionV5",
         "NonMaxSuppressionWithOverlaps", "RaggedRange", "SparseCross", "SparseSparseMaximum", "SparseSparseMinimum"],
        GIVES_AS_MANY,
    ),
    **dict.fromkeys(["HashTableV2", "LookupTableFindV2", "LookupTableSizeV2", "MutableHashTableV2"], LOOKS_UP),
    **dict.fromkeys(
        ["IteratorGetNext", "IteratorV2", "QueueDequeueManyV2", "QueueDequeueUpToV2", "QueueDequeueV2", "ReadFile",
         "ReaderReadV2"], BRINGS_DATA,
    ),
    **dict.fromkeys(
        ["AsString", "DecodeJpeg", "DecodePng", "DecodeRaw", "ParseExample", "ParseExampleV2", "ParseSingleExample",
         "StringJoin", "StringSplit", "StringToHashBucketFast", "StringToNumber"], HAS_STRINGS,
    ),
}  # fmt: skip
