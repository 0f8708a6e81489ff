#pragma once
// The models of the library `transformers` that are models of this program, too: the same function under other names.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "ops/named_tensors.h"
#include "run/huggingface/config_file.h"

namespace metaformer {

struct DescribedModel {
  TransformerConfig config;
  std::int64_t vocabulary = 0;
  std::int64_t key_value_heads = 0;  // divides config.heads; each of them serves several
};

// Their names of the tensors of each layer, without ".weight" and ".bias". Where there are several, theirs lie below
// each other in ours.
struct TheirNames {
  std::string prefix;                               // of all tensors but the head's
  std::string token_embedding, position_embedding;  // the second may be empty
  std::string blocks;                               // "h." of "h.0.ln_1"
  std::string mixer_norm;
  std::vector<std::string> query_key_value;
  std::string output, feed_forward_norm;
  std::vector<std::string> up;
  std::string down, final_norm;
  std::vector<std::string> buffers;  // endings of the names of tensors that are no parameters, which some files have
};

struct Architecture {
  std::string_view model_type;  // as in config.json
  TheirNames names;
  bool transposes;     // linear layers are stored as [inputs, outputs]
  bool always_biased;  // linear layers and norms have biases, which are zero where ours have none

  // Errors (exit code 3) name the key whose value this program's models cannot have.
  DescribedModel (*read_config)(ConfigFile& file);

  // config.json of a model that `closest(model.config)` does not change.
  nlohmann::ordered_json (*write_config)(const DescribedModel& model);

  // The config of this architecture that is closest to `given`: what differs keeps it from being exported.
  TransformerConfig (*closest)(const TransformerConfig& given);
};

const Architecture& gpt2();
const Architecture& llama();
std::vector<const Architecture*> architectures();  // those above

// The model's tensors by the names of this program, from theirs, and back; `source` names what is given in errors (exit
// code 3): a tensor is missing, left over or of another shape.
NamedTensors import_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& theirs,
                            const std::string& source);
NamedTensors export_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& ours,
                            const std::string& source);

}  // namespace metaformer
