#pragma once
// at::parallel_for. Its loops are templates, compiled here: without OpenMP they would silently run on one thread.

#include <ATen/Parallel.h>

#ifndef INTRA_OP_PARALLEL
#error "at::parallel_for needs the compiler's OpenMP flag (link metaformer_torch)"
#endif
