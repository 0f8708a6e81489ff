#pragma once
// The models of `transformers` that this program has, too.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "ops/named_tensors.h"
#include "run/huggingface/config_file.h"

namespace metaformer {

// Named tensors from which others are made: each is taken once, and none may be left over.
class TensorTable {
 public:
  // `source` names the tensors in errors (exit code 3).
  TensorTable(const NamedTensors& tensors, std::string source);

  // The tensor in float32, on the CPU. Errors: it is missing, or has another shape.
  torch::Tensor take(const std::string& name, at::IntArrayRef shape);

  bool contains(const std::string& name) const { return tensors_.contains(name); }

  // Removes what ends with `suffix`.
  void drop(const std::string& suffix);

  void require_empty() const;

 private:
  std::map<std::string, torch::Tensor> tensors_;
  std::string source_;
};

// Which tensors of a model of the library `transformers` make up a tensor of this program's model. The same list leads
// from theirs to ours and back.
struct TheirTensor {
  std::string name;
  std::int64_t rows = 0;
  // Each of so many heads is there once and is used `copies` times, one after another (grouped-query attention).
  std::int64_t heads = 1, copies = 1;
};

struct TensorLink {
  std::string ours;
  std::vector<std::int64_t> shape;  // of ours
  std::vector<TheirTensor> theirs;  // below each other
  bool transposed = false;          // theirs
  bool zero_if_absent = false;      // ours, a bias that only they have
};

// Errors (exit code 3): as of TensorTable.
NamedTensors to_ours(const std::vector<TensorLink>& links, TensorTable& theirs);
NamedTensors to_theirs(const std::vector<TensorLink>& links, TensorTable& ours);

// The models of the library `transformers` that are models of this program, too: the same function under other names.
struct DescribedModel {
  TransformerConfig config;
  std::int64_t vocabulary = 0;
  std::int64_t key_value_heads = 0;  // divides config.heads; each of them serves several
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  virtual std::string_view model_type() const = 0;  // as in config.json

  // In front of the names of all tensors but the head's.
  virtual std::string prefix() const = 0;

  // Endings of the names of tensors that are no parameters, which some files have.
  virtual std::vector<std::string> buffers() const = 0;

  // Errors (exit code 3) name the key whose value this program's models cannot have.
  virtual DescribedModel read_config(ConfigFile& file) const = 0;

  // Of a model that `closest(model.config)` does not change.
  virtual nlohmann::ordered_json write_config(const DescribedModel& model) const = 0;

  // The config of this architecture that is closest to `given`: what differs keeps it from being exported.
  virtual TransformerConfig closest(const TransformerConfig& given) const = 0;

  // All tensors but the head, theirs without prefix. The token embeddings come first.
  virtual std::vector<TensorLink> links(const DescribedModel& model) const = 0;
};

// The model's tensors by the names of this program, from theirs, and back; `source` names what is given in errors (exit
// code 3): a tensor is missing, left over or of another shape.
NamedTensors import_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& theirs,
                            const std::string& source);
NamedTensors export_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& ours,
                            const std::string& source);

const Architecture& gpt2();
const Architecture& llama();
std::vector<const Architecture*> architectures();  // those above

// The name that the library gives an activation; "" for one that it does not have.
std::string name_of(const ActivationConfig& activation);

// Reads the activation from `key`. Errors: exit code 3.
ActivationConfig read_activation(ConfigFile& file, const char* key, const std::string& fallback);

}  // namespace metaformer
