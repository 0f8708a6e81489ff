#pragma once
// `bench attention --write-choices`: the table that the backend auto goes by.

#include <cstdint>
#include <string>

namespace metaformer {

struct ChoiceArguments {
  std::string file;  // "auto": where the backend auto looks for it
  std::string device = "auto";
  std::int64_t rounds = 5;
  bool json = false;
};

// Measures and writes it. Errors (exit code 2): a device without the kernels, a file that cannot be named.
void write_choices(const ChoiceArguments& arguments);

}  // namespace metaformer
