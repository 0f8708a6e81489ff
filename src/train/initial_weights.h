#pragma once
// train.init_from: a training begins with the weights of a run, and with its tokenizer.

#include <filesystem>
#include <string>
#include <vector>

#include "config/loader.h"
#include "model/sequence_model.h"
#include "ops/named_tensors.h"
#include "text/tokenizer.h"

namespace metaformer {

struct InitialWeights {
  std::string source;       // the path in train.init_from, for errors and the log
  ExperimentConfig config;  // of that training: model and tokenizer
  NamedTensors tensors;     // with this program's parameter names
  Codec codec;              // without labels for a language model
  std::string digest;       // SHA-256 of the tensors as a safetensors file
  bool is_foreign = false;  // from a Hugging Face folder: not valid in another model
};

// `path`: the folder of a run (its best checkpoint is read), the folder of one of its checkpoints, or a Hugging Face
// folder (run/huggingface/model_folder.h). Errors: exit code 2 when it is none of these, or has no tokenizer; those of
// load_checkpoint and read_huggingface.
InitialWeights read_initial_weights(const std::filesystem::path& path);

// Sets the tokenizer of the experiment to that of the weights; `source` is their path, for errors. Throws Error (exit
// code 2) when the config asks for another one, or the task cannot use it.
void take_tokenizer(Experiment& experiment, const TokenizerOptions& tokenizer, const std::string& source);

// Which parameters and buffers of a model were copied or newly initialised, and which of the source were not used.
struct WeightTransfer {
  std::vector<std::string> copied, initialised, unused;
  std::vector<std::string> parts;  // "transformer.token_embedding.weight (1000 of 1001 rows)", the rest is initialised

  std::string str() const;  // for the log: counts, and names of all but those that were copied whole
};

// Copies tensors of the same name and shape into `model`, which holds initial weights. Of tables with a row for each
// token or position, the rows that both have are copied. A language model's head is copied only to a model with the
// same tokens, a classifier's head only to one with the same labels. Throws Error (exit code 2) when the shape of
// another tensor differs, when nothing can be copied, and when foreign weights are of another model.
WeightTransfer copy_initial_weights(const InitialWeights& weights, const ExperimentConfig& config, const Codec& codec,
                                    SequenceModel& model);

// Keys of the model that differ between the source and the config and change the model's function, as "model.heads is 4
// here and 8 there".
std::vector<std::string> differing_model_keys(const ExperimentConfig& here, const ExperimentConfig& there);

}  // namespace metaformer
