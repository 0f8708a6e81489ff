#pragma once
// Tensors as an .npz archive, which numpy.load reads.

#include <filesystem>

#include "ops/named_tensors.h"

namespace metaformer {

// An array for each tensor, by its name. Errors (exit code 1): the file cannot be written, a type that NumPy lacks.
void write_npz(const std::filesystem::path& path, const NamedTensors& tensors);

}  // namespace metaformer
