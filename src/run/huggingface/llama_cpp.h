#pragma once
// A LLaMA as llama.cpp reads it: one GGUF file with the weights and the tokenizer.

#include <string>

#include "ops/named_tensors.h"
#include "run/huggingface/architecture.h"
#include "text/tokenizer.h"

namespace metaformer {

// Returns the file's bytes. `model` has the architecture llama(), with the names and layout of whose tensors `theirs`
// comes from export_tensors; `name` is the model's name in the file. Texts have the same ids there as with `tokenizer`,
// without a token in front of them.
//
// Errors (exit code 2): another activation than silu, heads of an odd number of features, or a tokenizer that llama.cpp
// lacks. It has byte-level BPE with the words of GPT-2, LLaMA 3, Qwen 2 and SmolLM, and sentencepiece's BPE that keeps
// white space.
std::string llama_cpp_file(const DescribedModel& model, const NamedTensors& theirs, const Tokenizer& tokenizer,
                           const std::string& name);

}  // namespace metaformer
