#include "run/huggingface/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "config/mixer_config.h"
#include "config/writer.h"

namespace metaformer {

namespace {

// Keys without effect on the model: for the library's own bookkeeping, for generation and for other tasks.
constexpr std::string_view without_effect =
    "_attn_implementation _attn_implementation_autoset _name_or_path architectures attn_impl attn_implementation "
    "bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward cross_attention_hidden_size "
    "decoder_start_token_id diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size "
    "eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id "
    "gradient_checkpointing id2label initializer_factor initializer_range is_decoder label2id length_penalty "
    "max_length min_length model_type no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences "
    "output_attentions output_hidden_states output_scores pad_token_id prefix problem_type remove_invalid_values "
    "repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens task_specific_params "
    "temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript "
    "transformers.js_config transformers_version typical_p unk_token_id use_bfloat16 use_cache use_flash_attention "
    "use_flash_attention_2 use_flash_attn use_sdpa_attention ";

// Words in keys that change the function of a model or the storage of its weights, in this or another architecture.
constexpr std::string_view words_of_models =
    "activation act_fn adapter alibi attention attn auto_map bias conv_ dim embed expert factor ffn gated glu head "
    "hidden inner interleav kv layer logit lora mixer mlp moe multiplier nope norm position qk quant relative "
    "residual rope rotary router scale scaling shared sink sliding soft sparse ssm theta tie_ tied window ";

std::set<std::string> words_of(std::string_view list) {
  std::istringstream stream{std::string(list)};
  return {std::istream_iterator<std::string>(stream), {}};
}

// Names that begin with an underscore are the library's own notes.
bool may_have_effect(const std::string& key) {
  static const auto words = words_of(words_of_models);
  return !key.starts_with('_') && std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return key.find(word) != std::string::npos;
  });
}

// Named tensors from which others are made: each is taken once, and none may be left over.
class TensorTable {
 public:
  // `source` names the tensors in errors (exit code 3).
  TensorTable(const NamedTensors& tensors, std::string source)
      : tensors_(tensors.begin(), tensors.end()), source_(std::move(source)) {}

  // The tensor in float32, on the CPU. Errors: it is missing, or has another shape.
  torch::Tensor take(const std::string& name, at::IntArrayRef shape) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) fail_data("{}: it has no tensor {}", source_, in_quotes(name));
    const auto tensor = found->second;
    tensors_.erase(found);
    if (tensor.sizes() != shape)
      fail_data("{}: its {} has shape [{}], and the config needs [{}]", source_, in_quotes(name),
                fmt::join(tensor.sizes(), ", "), fmt::join(shape, ", "));
    return tensor.to(torch::kCPU, torch::kFloat);
  }

  bool contains(const std::string& name) const { return tensors_.contains(name); }

  void require_empty() const {
    if (!tensors_.empty())
      fail_data("{}: its tensor {} is not part of the model that the config describes", source_,
                in_quotes(tensors_.begin()->first));
  }

 private:
  std::map<std::string, torch::Tensor> tensors_;
  std::string source_;
};

struct TheirTensor {
  std::string name;
  std::int64_t rows = 0;
};

// One of our tensors, and the tensors of the library that it consists of.
struct TensorLink {
  std::string ours;
  std::vector<std::int64_t> shape;  // of ours
  std::vector<TheirTensor> theirs;  // concatenated along the rows
  bool transposed = false;          // theirs are stored transposed
  bool zero_if_absent = false;      // a bias that our model may lack is exported as zeros
};

const std::string head = "lm_head.weight";

// For a model with the mixer scaled dot product.
std::int64_t key_value_heads(const TransformerConfig& config) {
  return std::get<ScaledDotProductOptions>(config.mixer).key_heads(config.mixer_shape());
}

// All tensors, the token embeddings first. The list serves for both import and export.
std::vector<TensorLink> links_of(const Architecture& architecture, const DescribedModel& model) {
  const auto& config = model.config;
  const auto& names = architecture.names;
  const auto d = config.width;
  std::vector<TensorLink> links;
  const auto add_table = [&](const std::string& ours, const std::string& theirs, std::int64_t rows) {
    links.push_back({ours, {rows, d}, {{theirs, rows}}});
  };
  // `inputs`: 0 for a norm. With several parts, the first has `first_rows` rows and the others share the rest; 0: all
  // have the same number of rows.
  const auto add_layer = [&](const std::string& ours, const std::string& block, const std::vector<std::string>& parts,
                             std::int64_t outputs, std::int64_t inputs, std::int64_t first_rows = 0) {
    const bool is_linear = inputs > 0, has_bias = architecture.always_biased || (is_linear && config.bias);
    for (const auto* kind : {".weight", ".bias"}) {
      const bool is_bias = kind == std::string_view(".bias");
      if (is_bias && !has_bias) continue;
      TensorLink link{.ours = ours + kind,
                      .shape = is_linear && !is_bias ? std::vector{outputs, inputs} : std::vector{outputs},
                      .transposed = is_linear && !is_bias && architecture.transposes,
                      .zero_if_absent = is_bias && !config.bias};
      for (const auto& part : parts) {
        const bool is_first = link.theirs.empty() && first_rows > 0;
        const auto others = std::ssize(parts) - (first_rows > 0 ? 1 : 0);
        const auto rows = is_first ? first_rows : (outputs - first_rows) / others;
        link.theirs.push_back({names.prefix + block + part + kind, rows});
      }
      links.push_back(std::move(link));
    }
  };
  add_table("transformer.token_embedding.weight", names.prefix + names.token_embedding + ".weight", model.vocabulary);
  if (!names.position_embedding.empty())
    add_table("transformer.position_embedding.weight", names.prefix + names.position_embedding + ".weight",
              config.context);
  const auto key_rows = key_value_heads(config) * config.head_width();
  const auto query_rows = names.query_key_value.size() == 1 ? 0 : d;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const auto ours = fmt::format("transformer.blocks.{}.", layer), block = fmt::format("{}{}.", names.blocks, layer);
    add_layer(ours + "mixer_norm", block, {names.mixer_norm}, d, 0);
    add_layer(ours + "mixer.query_key_value", block, names.query_key_value, d + 2 * key_rows, d, query_rows);
    add_layer(ours + "mixer.output", block, {names.output}, d, d);
    add_layer(ours + "feed_forward_norm", block, {names.feed_forward_norm}, d, 0);
    add_layer(ours + "feed_forward.up", block, names.up, config.up_width(), d);
    add_layer(ours + "feed_forward.down", block, {names.down}, d, config.hidden_width());
  }
  add_layer("transformer.final_norm", "", {names.final_norm}, d, 0);
  if (!config.embedding.tie) add_table("head.weight", head, model.vocabulary);
  return links;
}

// If a function has several names, the first one is written.
const std::array<std::pair<std::string_view, ActivationConfig>, 7> activations = {
    {{"gelu", GeluConfig{}},
     {"gelu_new", GeluTanhConfig{}},
     {"gelu_pytorch_tanh", GeluTanhConfig{}},
     {"relu", ReluConfig{}},
     {"silu", SiluConfig{}},
     {"swish", SiluConfig{}},
     {"relu2", ReluSquaredConfig{}}}};

std::string name_of(const ActivationConfig& activation) {
  const auto* silu = std::get_if<SiluConfig>(&activation);
  for (const auto& [known, candidate] : activations)
    if (candidate.index() == activation.index() && (silu == nullptr || silu->beta == 1)) return std::string(known);
  return "";
}

// The options that every architecture takes from a config: sizes, tied embeddings and biases. The mixer is scaled dot
// product, with as many key heads as query heads.
TransformerConfig with_sizes_of(const TransformerConfig& given) {
  TransformerConfig config;
  config.layers = given.layers;
  config.heads = given.heads;
  config.width = given.width;
  config.context = given.context;
  config.embedding.tie = given.embedding.tie;
  config.bias = given.bias;
  ScaledDotProductOptions mixer;
  const auto* own = std::get_if<ScaledDotProductOptions>(&given.mixer);
  if (own != nullptr && own->key_value_heads == given.heads) mixer.key_value_heads = given.heads;  // equivalent to 0
  config.mixer = mixer;
  return config;
}

// The feed-forward branch of an architecture. If `given` is of this kind, the branch has its ratio and, if the library
// has it, its activation.
template <class FeedForward>
FeedForward closest_feed_forward(const FeedForwardConfig& given) {
  FeedForward closest;
  if (const auto* own = std::get_if<FeedForward>(&given)) {
    closest.ratio = own->ratio;
    if (!name_of(own->activation).empty()) closest.activation = own->activation;
  }
  return closest;
}

ActivationConfig read_activation(ConfigFile& file, const char* key, const std::string& fallback) {
  const auto name = file.text(key, fallback);
  for (const auto& [known, activation] : activations)
    if (known == name) return activation;
  file.refuse(key, "this program has no such activation");
}

// GPT-2 (Radford et al. 2019), as GPT2LMHeadModel.
DescribedModel read_gpt2(ConfigFile& file) {
  DescribedModel model{.config = {}, .vocabulary = file.count("vocab_size", 50257)};
  auto& config = model.config;
  config.layers = file.count("n_layer", 12);
  config.heads = file.count("n_head", 12);
  config.width = file.count("n_embd", 768);
  config.context = file.count("n_positions", 1024);
  config.dropout = file.number("resid_pdrop", 0.1);
  config.positions = LearnedPositionsConfig{};
  config.norm = LayerNormConfig{.epsilon = file.number("layer_norm_epsilon", 1e-5)};
  config.embedding.tie = file.flag("tie_word_embeddings", true);
  config.bias = true;
  config.mixer = ScaledDotProductOptions{};
  const auto hidden = static_cast<double>(file.count("n_inner", 4 * config.width));
  config.feed_forward = MlpConfig{.activation = read_activation(file, "activation_function", "gelu_new"),
                                  .ratio = hidden / static_cast<double>(config.width)};
  if (config.width % config.heads != 0) file.refuse("n_head", "it must divide n_embd");
  file.require("scale_attn_weights", true);
  file.require("scale_attn_by_inverse_layer_idx", false);
  file.require("add_cross_attention", false);
  file.ignore({"embd_pdrop", "attn_pdrop", "n_ctx", "reorder_and_upcast_attn", "summary_type", "summary_use_proj",
               "summary_activation", "summary_proj_to_labels", "summary_first_dropout"});
  return model;
}

nlohmann::ordered_json write_gpt2(const DescribedModel& model) {
  const auto& config = model.config;
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", model.vocabulary},
          {"n_positions", config.context},
          {"n_embd", config.width},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"n_inner", config.hidden_width()},
          {"activation_function", name_of(std::get<MlpConfig>(config.feed_forward).activation)},
          {"layer_norm_epsilon", epsilon_of(config.norm)},
          {"resid_pdrop", config.dropout},
          {"embd_pdrop", config.dropout},
          {"attn_pdrop", config.dropout},
          {"tie_word_embeddings", config.embedding.tie}};
}

TransformerConfig closest_gpt2(const TransformerConfig& given) {
  auto config = with_sizes_of(given);  // if the config has no biases, theirs are zero
  config.dropout = given.dropout;
  config.positions = LearnedPositionsConfig{};
  config.norm = LayerNormConfig{.epsilon = epsilon_of(given.norm)};
  config.feed_forward = closest_feed_forward<MlpConfig>(given.feed_forward);
  return config;
}

// LLaMA (Touvron et al. 2023), as LlamaForCausalLM: queries and keys are rotated in halves, as in this program. The
// base is rope_theta, which may be inside rope_parameters. Scaling of positions is another function, so it is refused.
double read_base(ConfigFile& file) {
  double base = file.number("rope_theta", 10000);
  for (const auto* key : {"rope_scaling", "rope_parameters"}) {
    const auto section = file.object(key);
    for (const auto& [name, value] : section.items()) {
      if (name == "rope_theta" && value.is_number())
        base = value.get<double>();
      else if ((name != "rope_type" && name != "type") || value != "default")
        file.refuse(key, "only the rope_type default is supported");
    }
  }
  return base;
}

DescribedModel read_llama(ConfigFile& file) {
  DescribedModel model{.config = {}, .vocabulary = file.count("vocab_size", 32000)};
  auto& config = model.config;
  config.layers = file.count("num_hidden_layers", 32);
  config.heads = file.count("num_attention_heads", 32);
  config.width = file.count("hidden_size", 4096);
  config.context = file.count("max_position_embeddings", 2048);
  config.positions = RotaryPositionsConfig{.base = read_base(file)};
  config.norm = RmsNormConfig{.epsilon = file.number("rms_norm_eps", 1e-6)};
  config.embedding.tie = file.flag("tie_word_embeddings", false);
  config.bias = file.flag("attention_bias", false);
  if (file.flag("mlp_bias", false) != config.bias)
    file.refuse("mlp_bias", "here all linear layers have a bias, or none: it must equal attention_bias");
  const auto hidden = file.count("intermediate_size", 11008);
  const GatedConfig gated{.activation = read_activation(file, "hidden_act", "silu"),
                          .ratio = static_cast<double>(hidden) / static_cast<double>(config.width)};
  if (gated.hidden_width(config.width) != hidden) file.refuse("intermediate_size", "it must be a multiple of 8");
  config.feed_forward = gated;
  if (config.width % config.heads != 0) file.refuse("num_attention_heads", "it must divide hidden_size");
  const auto key_value_heads = file.count("num_key_value_heads", config.heads);
  if (config.heads % key_value_heads != 0) file.refuse("num_key_value_heads", "it must divide num_attention_heads");
  config.mixer = ScaledDotProductOptions{.key_value_heads = key_value_heads == config.heads ? 0 : key_value_heads};
  file.require("head_dim", config.head_width());
  file.require("rope_interleaved", false);
  file.ignore({"attention_dropout", "pretraining_tp", "is_llama_config"});
  return model;
}

nlohmann::ordered_json write_llama(const DescribedModel& model) {
  const auto& config = model.config;
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", model.vocabulary},
          {"max_position_embeddings", config.context},
          {"hidden_size", config.width},
          {"intermediate_size", config.hidden_width()},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", key_value_heads(config)},
          {"hidden_act", name_of(std::get<GatedConfig>(config.feed_forward).activation)},
          {"rms_norm_eps", epsilon_of(config.norm)},
          {"rope_theta", std::get<RotaryPositionsConfig>(config.positions).base},
          {"attention_bias", config.bias},
          {"mlp_bias", config.bias},
          {"tie_word_embeddings", config.embedding.tie}};
}

TransformerConfig closest_llama(const TransformerConfig& given) {
  auto config = with_sizes_of(given);
  if (const auto* own = std::get_if<ScaledDotProductOptions>(&given.mixer))
    config.mixer = ScaledDotProductOptions{.key_value_heads = own->key_value_heads};
  RotaryPositionsConfig positions;
  if (const auto* own = std::get_if<RotaryPositionsConfig>(&given.positions)) positions.base = own->base;
  config.positions = positions;
  config.norm = RmsNormConfig{.epsilon = epsilon_of(given.norm)};
  config.feed_forward = closest_feed_forward<GatedConfig>(given.feed_forward);
  return config;
}

}  // namespace

ConfigFile::ConfigFile(const std::string& text, std::string source)
    : json_(parse_json(text)), source_(std::move(source)) {
  if (!json_.is_object()) fail_data("{}: not a JSON object", source_);
}

void ConfigFile::refuse(const std::string& key, const std::string& why) const {
  const auto found = json_.find(key);
  if (found == json_.end()) fail_data("{}: {} is missing; {}", source_, key, why);
  fail_data("{}: {} is {}; {}", source_, key, printable(json_text(*found)), why);
}

const nlohmann::json& ConfigFile::value(const char* key) {
  known_.insert(key);
  return json_member(json_, key);
}

void ConfigFile::require(const char* key, const nlohmann::json& only) {
  const auto& given = value(key);
  if (!given.is_null() && given != only) refuse(key, fmt::format("only {} is supported", json_text(only)));
}

std::vector<std::string> ConfigFile::unknown_keys() const {
  static const auto free = words_of(without_effect);
  std::vector<std::string> unknown;
  for (const auto& [key, given] : json_.items()) {
    if (free.contains(key) || known_.contains(key)) continue;
    if (!given.is_null() && may_have_effect(key))
      refuse(key, "this key is unknown and may change the model; remove it if it does not");
    unknown.push_back(key);
  }
  return unknown;
}

std::vector<std::string> config_differences(const TransformerConfig& given, const TransformerConfig& needed) {
  const auto values = flattened(config_to_json({.model = given}));
  std::vector<std::string> differences;
  if (!given.mixers.empty())
    differences.push_back(fmt::format("model.mixer is a list and must be {}", kind_of(needed.mixer)));
  for (const auto& [key, value] : flattened(config_to_json({.model = needed}))) {
    const auto found = values.find(key);  // an option of another kind may be missing
    const bool is_free = key == "model.context"              ? !is<LearnedPositionsConfig>(needed.positions)
                         : key == "model.feed_forward.ratio" ? given.hidden_width() == needed.hidden_width()
                                                             : keeps_function(key);
    if (key.starts_with("model.") && found != values.end() && found->second != value && !is_free)
      differences.push_back(fmt::format("{} is {} and must be {}", key, found->second, value));
  }
  return differences;
}

NamedTensors import_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& theirs,
                            const std::string& source) {
  NamedTensors named;
  for (const auto& [name, tensor] : theirs) {  // a model without its head is saved without prefix
    const auto is_buffer = [&](const std::string& ending) { return name.ends_with(ending); };
    const auto& buffers = architecture.names.buffers;
    if (std::any_of(buffers.begin(), buffers.end(), is_buffer)) continue;
    const bool is_whole = name.starts_with(architecture.names.prefix) || name == head;
    named.emplace_back(is_whole ? name : architecture.names.prefix + name, tensor);
  }
  TensorTable table(named, source);
  torch::Tensor tied_head_vd;  // may be stored beside the embeddings
  if (model.config.embedding.tie && table.contains(head))
    tied_head_vd = table.take(head, {model.vocabulary, model.config.width});
  NamedTensors ours;
  for (const auto& link : links_of(architecture, model)) {
    std::vector<torch::Tensor> parts;
    for (const auto& part : link.theirs) {
      auto shape = link.shape;
      shape.front() = part.rows;
      if (link.transposed) std::reverse(shape.begin(), shape.end());
      const auto tensor = table.take(part.name, shape);
      parts.push_back(link.transposed ? tensor.t() : tensor);
    }
    ours.emplace_back(link.ours, parts.size() == 1 ? parts[0].contiguous() : torch::cat(parts, 0));
  }
  table.require_empty();
  if (tied_head_vd.defined() && !tied_head_vd.equal(ours.front().second))
    fail_data("{}: its {} is not the embeddings, and tie_word_embeddings is true", source, head);
  return ours;
}

NamedTensors export_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& ours,
                            const std::string& source) {
  TensorTable table(ours, source);
  NamedTensors theirs;
  for (const auto& link : links_of(architecture, model)) {
    const bool is_absent = link.zero_if_absent && !table.contains(link.ours);
    const auto tensor = is_absent ? torch::zeros(link.shape) : table.take(link.ours, link.shape);
    std::int64_t row = 0;
    for (const auto& part : link.theirs) {
      const auto rows = tensor.narrow(0, row, part.rows);
      theirs.emplace_back(part.name, (link.transposed ? rows.t() : rows).contiguous());
      row += part.rows;
    }
  }
  table.require_empty();
  return theirs;
}

std::vector<LayerAdapter> export_adapters(const Architecture& architecture, const DescribedModel& model,
                                          const NamedTensors& ours, std::int64_t rank, const std::string& source) {
  constexpr std::string_view ending = ".weight";
  TensorTable table(ours, source);
  std::vector<LayerAdapter> adapters;
  for (const auto& link : links_of(architecture, model)) {
    const auto layer = link.ours.substr(0, link.ours.rfind('.'));
    if (!link.ours.ends_with(ending) || !table.contains(layer + ".lora_A")) continue;
    const auto a_ri = table.take(layer + ".lora_A", {rank, link.shape.back()});
    const auto b_or = table.take(layer + ".lora_B", {link.shape.front(), rank});
    std::int64_t row = 0;
    for (const auto& part : link.theirs) {
      adapters.push_back({.layer = part.name.substr(0, part.name.size() - ending.size()),
                          .lora_a_ri = a_ri,
                          .lora_b_or = b_or.narrow(0, row, part.rows).contiguous()});
      row += part.rows;
    }
  }
  table.require_empty();
  return adapters;
}

const Architecture& gpt2() {
  static const Architecture architecture{.model_type = "gpt2",
                                         .names = {.prefix = "transformer.",
                                                   .token_embedding = "wte",
                                                   .position_embedding = "wpe",
                                                   .blocks = "h.",
                                                   .mixer_norm = "ln_1",
                                                   .query_key_value = {"attn.c_attn"},
                                                   .output = "attn.c_proj",
                                                   .feed_forward_norm = "ln_2",
                                                   .up = {"mlp.c_fc"},
                                                   .down = "mlp.c_proj",
                                                   .final_norm = "ln_f",
                                                   .buffers = {".attn.bias", ".attn.masked_bias"}},
                                         .transposes = true,
                                         .always_biased = true,
                                         .read_config = read_gpt2,
                                         .write_config = write_gpt2,
                                         .closest = closest_gpt2};
  return architecture;
}

const Architecture& llama() {
  static const Architecture architecture{
      .model_type = "llama",
      .names = {.prefix = "model.",
                .token_embedding = "embed_tokens",
                .position_embedding = "",
                .blocks = "layers.",
                .mixer_norm = "input_layernorm",
                .query_key_value = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                .output = "self_attn.o_proj",
                .feed_forward_norm = "post_attention_layernorm",
                .up = {"mlp.gate_proj", "mlp.up_proj"},
                .down = "mlp.down_proj",
                .final_norm = "norm",
                .buffers = {".rotary_emb.inv_freq"}},
      .transposes = false,
      .always_biased = false,
      .read_config = read_llama,
      .write_config = write_llama,
      .closest = closest_llama};
  return architecture;
}

std::vector<const Architecture*> architectures() { return {&gpt2(), &llama()}; }

}  // namespace metaformer
