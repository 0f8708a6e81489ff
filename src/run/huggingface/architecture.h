#pragma once
// The models of the library `transformers` that this program has, too: the same functions with other tensor names.

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "ops/named_tensors.h"

namespace metaformer {

// config.json of a Hugging Face folder. A key that is unknown and, by its name, may change what the model computes is
// an error; other unknown keys are ignored.
class ConfigFile {
 public:
  // `text`: the content; `source` names it in errors (exit code 3), which name the key and its value, too.
  ConfigFile(const std::string& text, std::string source);

  // Values of keys that describe the model. Without a fallback the key must exist; null counts as absent.
  std::int64_t count(const char* key, std::int64_t fallback) {  // above 0
    const auto fits = [](const auto& given) { return given.is_number_unsigned() && given > 0 && given < 1U << 31; };
    return get<std::int64_t>(key, fallback, fits, "expected a whole number above 0");
  }
  double number(const char* key, double fallback) {
    return get<double>(key, fallback, &nlohmann::json::is_number, "expected a number");
  }
  bool flag(const char* key, bool fallback) {
    return get<bool>(key, fallback, &nlohmann::json::is_boolean, "expected true or false");
  }
  std::string text(const char* key, const std::optional<std::string>& fallback = std::nullopt) {
    return get<std::string>(key, fallback, &nlohmann::json::is_string, "expected a text");
  }
  nlohmann::json object(const char* key) {  // {} if it is absent
    return get<nlohmann::json>(key, nlohmann::json::object(), &nlohmann::json::is_object, "expected an object");
  }

  // Refuses every value except `only` and null: this program's models support no other.
  void require(const char* key, const nlohmann::json& only);

  // Accepts keys of this architecture that do not change evaluation, or that repeat other keys.
  void ignore(std::initializer_list<const char*> keys) { known_.insert(keys.begin(), keys.end()); }

  // The keys that were not read and that are not among the library's keys without effect; they are ignored. Throws when
  // one of them may change the model: its name contains a word such as rope, norm or scale, and its value is not null.
  std::vector<std::string> unknown_keys() const;

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;

 private:
  const nlohmann::json& value(const char* key);

  template <class T>
  T get(const char* key, const std::optional<T>& fallback, const std::function<bool(const nlohmann::json&)>& fits,
        const char* expected) {
    const auto& given = value(key);
    if (given.is_null() && fallback) return *fallback;
    if (!fits(given)) refuse(key, expected);
    return given.get<T>();
  }

  nlohmann::json json_;
  std::string source_;
  std::set<std::string> known_;
};

// "model.layers is 4 and must be 12": the keys that give `given` another function than `needed`. Keys that only concern
// training, speed or memory may differ, and so may the context if positions are not learned.
std::vector<std::string> config_differences(const TransformerConfig& given, const TransformerConfig& needed);

struct DescribedModel {
  TransformerConfig config;
  std::int64_t vocabulary = 0;
};

// The library's names of the tensors of each layer, without ".weight" and ".bias". If there are several names, our
// tensor is their concatenation along the rows.
struct TheirNames {
  std::string prefix;                               // of all tensors except the head
  std::string token_embedding, position_embedding;  // the second may be empty
  std::string blocks;                               // "h." of "h.0.ln_1"
  std::string mixer_norm;
  std::vector<std::string> query_key_value;
  std::string output, feed_forward_norm;
  std::vector<std::string> up;
  std::string down, final_norm;
  std::vector<std::string> buffers;  // name endings of tensors that are not parameters, which some files contain
};

struct Architecture {
  std::string_view model_type;  // as in config.json
  TheirNames names;
  bool transposes;     // linear layers are stored as [inputs, outputs]
  bool always_biased;  // linear layers and norms have biases, which are zero if ours have none

  // Errors (exit code 3) name the key whose value this program's models cannot have.
  DescribedModel (*read_config)(ConfigFile& file);

  // config.json of a model that `closest(model.config)` does not change.
  nlohmann::ordered_json (*write_config)(const DescribedModel& model);

  // The config of this architecture that is closest to `given`. Any difference prevents the export.
  TransformerConfig (*closest)(const TransformerConfig& given);
};

// The factors of a low-rank adapter of one layer of the library, as the package `peft` names them.
struct LayerAdapter {
  std::string layer;  // "transformer.h.0.attn.c_attn"
  torch::Tensor lora_a_ri, lora_b_or;
};

// The adapters of our layers (train/lora.h), "X.lora_A" and "X.lora_B", as those of the library's layers. Layers that
// are one of ours have the same A, and their rows of B. Errors: as above.
std::vector<LayerAdapter> export_adapters(const Architecture& architecture, const DescribedModel& model,
                                          const NamedTensors& ours, std::int64_t rank, const std::string& source);

const Architecture& gpt2();
const Architecture& llama();
std::vector<const Architecture*> architectures();  // those above

// Convert tensors from the library's names and layout to ours, and back. Errors (exit code 3), which name `source`: a
// tensor is missing, left over or of another shape.
NamedTensors import_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& theirs,
                            const std::string& source);
NamedTensors export_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& ours,
                            const std::string& source);

}  // namespace metaformer
