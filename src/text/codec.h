#pragma once
// Converts data to numbers and back. Saved with every checkpoint, so that a model always has the same numbering.

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace metaformer {

struct Codec {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<std::string> labels;  // of classes, by class id; empty if there are none
};

}  // namespace metaformer
