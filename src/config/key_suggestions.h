#pragma once
// What someone meant who wrote a key that does not exist.

#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

// The full path of our key that has this name ("weight_decay" is "train.optimizer.weight_decay"; of several the one
// that is nested least), that an earlier version called so, or nanoGPT or Hugging Face ("lr", "num_hidden_layers",
// "per_device_train_batch_size"); "" where there is none, or more than one.
std::string full_key(std::string_view name);

// What to say of the unknown key `path`, where the keys `here` are known: "; did you mean 'train.learning_rate'?", or
// "" where nothing is near.
std::string suggest_key(const std::string& path, const std::vector<std::string>& here);

// For a key that other kinds than the chosen one have: which ones, "model.mixer: metric"; "" where it is none.
std::string kinds_with(const std::string& path);

}  // namespace metaformer
