#pragma once
// What turns data into numbers and back. Saved with every checkpoint, so that a model never meets another numbering.

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace metaformer {

struct Codec {
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::string> labels;  // of classes, by class id; empty where there are none
};

}  // namespace metaformer
