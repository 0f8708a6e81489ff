#pragma once
// The gradient of a table of embeddings on the GPU: pointers in, pointers out, no tensors.

#include <cstdint>

namespace metaformer::cuda {

// dtable_v = the sum of dy_t over all tokens t with the id v, in the order of the tokens: windows of sorted tokens are
// added first, then their sums. The rows of ids that no token has are not stored.
struct EmbeddingGradient {
  const std::int64_t* ids = nullptr;        // [tokens], each from 0 to vocabulary - 1
  std::int64_t tokens = 0, vocabulary = 0;  // both below 2^31
  int width = 0;
  const float* dy = nullptr;  // [tokens, width], contiguous
  float* dtable = nullptr;    // [vocabulary, width], likewise
  // Work space: embedding_gradient_numbers() unsigned numbers and embedding_gradient_sums() floats.
  std::uint32_t* numbers = nullptr;
  float* sums = nullptr;
};

std::int64_t embedding_gradient_numbers(std::int64_t tokens);
std::int64_t embedding_gradient_sums(std::int64_t tokens, int width);

// Runs on `stream` (a cudaStream_t) of the current device and returns at once. Equal inputs give equal bits. Errors
// (exit code 1): what CUDA says of a launch.
void embedding_gradient(const EmbeddingGradient& arguments, void* stream);

}  // namespace metaformer::cuda
