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
  std::string source;       // what train.init_from names, as errors and the log say it
  ExperimentConfig config;  // of that training: model and tokenizer
  NamedTensors tensors;     // by the names of this program's parameters
  Codec codec;              // no labels: of a language model
  std::string digest;       // SHA-256 of the tensors, as safetensors
  bool is_foreign = false;  // of a Hugging Face folder: nobody can say what it means in another model
};

// `path`: the folder of a run, whose best checkpoint is meant, of one of its checkpoints, or a Hugging Face folder
// (run/huggingface/model_folder.h). Errors: exit code 2 where there is none, or no tokenizer; those of
// load_checkpoint and read_huggingface.
InitialWeights read_initial_weights(const std::filesystem::path& path);

// The tokenizer that goes with the weights becomes that of the experiment; `source` names where both are from. Throws
// Error (exit code 2) where the config asks for another one, or the task cannot use it.
void take_tokenizer(Experiment& experiment, const TokenizerOptions& tokenizer, const std::string& source);

// The fate of the parameters and buffers of a model and of the source.
struct WeightTransfer {
  std::vector<std::string> copied, initialised, unused;
  std::vector<std::string> parts;  // "transformer.token_embedding.weight (1000 of 1001 rows)", the rest is initialised

  std::string str() const;  // for the log: counts, and the names where something was not copied whole
};

// Copies what has the same name and shape into `model`, which holds initial weights. Of tables with a row for each
// token or position, the rows that both have. Outputs belong to a task: the head of a language model is left to one
// with the same tokens, that of a classifier to one with the same labels. Throws Error (exit code 2) when the shape of
// another tensor differs, when nothing can be copied, and when foreign weights are of another model.
WeightTransfer copy_initial_weights(const InitialWeights& weights, const ExperimentConfig& config, const Codec& codec,
                                    SequenceModel& model);

// Keys of the model that differ between the source and the config and change what is computed, as "model.heads is 4
// here and 8 there".
std::vector<std::string> differing_model_keys(const ExperimentConfig& here, const ExperimentConfig& there);

}  // namespace metaformer
