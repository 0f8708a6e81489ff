// LLaMA (Touvron et al. 2023), as LlamaForCausalLM: queries and keys are rotated in halves, as here.

#include <fmt/format.h>

#include "attention/scaled_dot_product_options.h"
#include "huggingface/architecture.h"

namespace metaformer {

namespace {

class Llama : public Architecture {
 public:
  std::string_view model_type() const override { return "llama"; }
  std::string prefix() const override { return "model."; }
  std::vector<std::string> buffers() const override { return {".rotary_emb.inv_freq"}; }

  DescribedModel read_config(ConfigFile& file) const override {
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
    config.mixer = ScaledDotProductOptions{};
    config.feed_forward = read_feed_forward(file, config.width);
    if (config.width % config.heads != 0) file.refuse("num_attention_heads", "it must divide hidden_size");
    model.key_value_heads = file.count("num_key_value_heads", config.heads);
    if (config.heads % model.key_value_heads != 0)
      file.refuse("num_key_value_heads", "it must divide num_attention_heads");
    file.require("head_dim", config.head_width());
    file.require("rope_interleaved", false);
    file.ignore({"attention_dropout", "pretraining_tp", "is_llama_config"});
    return model;
  }

  nlohmann::ordered_json write_config(const DescribedModel& model) const override {
    const auto& config = model.config;
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", model_type()},
            {"vocab_size", model.vocabulary},
            {"max_position_embeddings", config.context},
            {"hidden_size", config.width},
            {"intermediate_size", config.hidden_width()},
            {"num_hidden_layers", config.layers},
            {"num_attention_heads", config.heads},
            {"num_key_value_heads", config.heads},
            {"hidden_act", name_of(std::get<GatedConfig>(config.feed_forward).activation)},
            {"rms_norm_eps", epsilon_of(config.norm)},
            {"rope_theta", std::get<RotaryPositionsConfig>(config.positions).base},
            {"attention_bias", config.bias},
            {"mlp_bias", config.bias},
            {"tie_word_embeddings", config.embedding.tie}};
  }

  TransformerConfig closest(const TransformerConfig& given) const override {
    TransformerConfig config;
    config.layers = given.layers;
    config.heads = given.heads;
    config.width = given.width;
    config.context = given.context;
    RotaryPositionsConfig positions;
    if (const auto* own = std::get_if<RotaryPositionsConfig>(&given.positions)) positions.base = own->base;
    config.positions = positions;
    config.norm = RmsNormConfig{.epsilon = epsilon_of(given.norm)};
    config.embedding.tie = given.embedding.tie;
    config.bias = given.bias;
    config.mixer = ScaledDotProductOptions{};
    GatedConfig gated;
    if (const auto* own = std::get_if<GatedConfig>(&given.feed_forward)) {
      gated.ratio = own->ratio;
      if (!name_of(own->activation).empty()) gated.activation = own->activation;
    }
    config.feed_forward = gated;
    return config;
  }

  std::vector<TensorLink> links(const DescribedModel& model) const override {
    const auto& config = model.config;
    const auto d = config.width, h = config.hidden_width();
    const auto key_heads = model.key_value_heads, copies = config.heads / key_heads, key_rows = d / copies;
    std::vector<TensorLink> links = {
        {"transformer.token_embedding.weight", {model.vocabulary, d}, {{"embed_tokens.weight", model.vocabulary}}}};
    const auto add_norm = [&](const std::string& ours, const std::string& theirs) {
      links.push_back({ours + ".weight", {d}, {{theirs + ".weight", d}}});
    };
    const auto add_linear = [&](const std::string& ours, std::int64_t outputs, std::int64_t inputs,
                                const std::vector<TheirTensor>& parts) {
      for (const auto* kind : {".weight", ".bias"}) {
        const bool is_bias = std::string_view(kind) == ".bias";
        if (is_bias && !config.bias) continue;
        auto theirs = parts;
        for (auto& part : theirs) part.name += kind;
        links.push_back({ours + kind, is_bias ? std::vector{outputs} : std::vector{outputs, inputs}, theirs});
      }
    };
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      const auto ours = fmt::format("transformer.blocks.{}.", layer), theirs = fmt::format("layers.{}.", layer);
      const auto attention = theirs + "self_attn.", mlp = theirs + "mlp.";
      add_norm(ours + "mixer_norm", theirs + "input_layernorm");
      add_linear(ours + "mixer.query_key_value", 3 * d, d,
                 {{attention + "q_proj", d},
                  {attention + "k_proj", key_rows, key_heads, copies},
                  {attention + "v_proj", key_rows, key_heads, copies}});
      add_linear(ours + "mixer.output", d, d, {{attention + "o_proj", d}});
      add_norm(ours + "feed_forward_norm", theirs + "post_attention_layernorm");
      add_linear(ours + "feed_forward.up", 2 * h, d, {{mlp + "gate_proj", h}, {mlp + "up_proj", h}});
      add_linear(ours + "feed_forward.down", d, h, {{mlp + "down_proj", d}});
    }
    add_norm("transformer.final_norm", "norm");
    return links;
  }

 private:
  // rope_theta, or the same within rope_parameters; a scaling of positions is another function.
  static double read_base(ConfigFile& file) {
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

  static GatedConfig read_feed_forward(ConfigFile& file, std::int64_t width) {
    const auto hidden = file.count("intermediate_size", 11008);
    GatedConfig gated{.activation = read_activation(file, "hidden_act", "silu"),
                      .ratio = static_cast<double>(hidden) / static_cast<double>(width)};
    if (gated.hidden_width(width) != hidden) file.refuse("intermediate_size", "it must be a multiple of 8");
    return gated;
  }
};

}  // namespace

const Architecture& llama() {
  static const Llama architecture;
  return architecture;
}

}  // namespace metaformer
