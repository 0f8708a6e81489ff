// GPT-2 (Radford et al. 2019), as GPT2LMHeadModel. Its linear layers are stored as [inputs, outputs].

#include <fmt/format.h>

#include "attention/scaled_dot_product_options.h"
#include "huggingface/architecture.h"

namespace metaformer {

namespace {

class Gpt2 : public Architecture {
 public:
  std::string_view model_type() const override { return "gpt2"; }
  std::string prefix() const override { return "transformer."; }
  std::vector<std::string> buffers() const override { return {".attn.bias", ".attn.masked_bias"}; }

  DescribedModel read_config(ConfigFile& file) const override {
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

  nlohmann::ordered_json write_config(const DescribedModel& model) const override {
    const auto& config = model.config;
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", model_type()},
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

  TransformerConfig closest(const TransformerConfig& given) const override {
    TransformerConfig config;
    config.layers = given.layers;
    config.heads = given.heads;
    config.width = given.width;
    config.context = given.context;
    config.dropout = given.dropout;
    config.positions = LearnedPositionsConfig{};
    config.norm = LayerNormConfig{.epsilon = epsilon_of(given.norm)};
    config.embedding.tie = given.embedding.tie;
    config.bias = given.bias;  // without biases theirs are zero
    config.mixer = ScaledDotProductOptions{};
    MlpConfig mlp;
    if (const auto* own = std::get_if<MlpConfig>(&given.feed_forward)) {
      mlp.ratio = own->ratio;
      if (!name_of(own->activation).empty()) mlp.activation = own->activation;
    }
    config.feed_forward = mlp;
    return config;
  }

  std::vector<TensorLink> links(const DescribedModel& model) const override {
    const auto& config = model.config;
    const auto d = config.width, h = config.hidden_width();
    std::vector<TensorLink> links = {
        {"transformer.token_embedding.weight", {model.vocabulary, d}, {{"wte.weight", model.vocabulary}}},
        {"transformer.position_embedding.weight", {config.context, d}, {{"wpe.weight", config.context}}}};
    const auto add_bias = [&](const std::string& ours, const std::string& theirs, std::int64_t size) {
      links.push_back({.ours = ours + ".bias",
                       .shape = {size},
                       .theirs = {{theirs + ".bias", size}},
                       .zero_if_absent = !config.bias});
    };
    const auto add_norm = [&](const std::string& ours, const std::string& theirs) {
      links.push_back({ours + ".weight", {d}, {{theirs + ".weight", d}}});
      add_bias(ours, theirs, d);
    };
    const auto add_linear = [&](const std::string& ours, const std::string& theirs, std::int64_t outputs,
                                std::int64_t inputs) {
      links.push_back({.ours = ours + ".weight",
                       .shape = {outputs, inputs},
                       .theirs = {{theirs + ".weight", outputs}},
                       .transposed = true});
      add_bias(ours, theirs, outputs);
    };
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      const auto ours = fmt::format("transformer.blocks.{}.", layer), theirs = fmt::format("h.{}.", layer);
      add_norm(ours + "mixer_norm", theirs + "ln_1");
      add_linear(ours + "mixer.query_key_value", theirs + "attn.c_attn", 3 * d, d);
      add_linear(ours + "mixer.output", theirs + "attn.c_proj", d, d);
      add_norm(ours + "feed_forward_norm", theirs + "ln_2");
      add_linear(ours + "feed_forward.up", theirs + "mlp.c_fc", h, d);
      add_linear(ours + "feed_forward.down", theirs + "mlp.c_proj", d, h);
    }
    add_norm("transformer.final_norm", "ln_f");
    return links;
  }
};

}  // namespace

const Architecture& gpt2() {
  static const Gpt2 architecture;
  return architecture;
}

}  // namespace metaformer
