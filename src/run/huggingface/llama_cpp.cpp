#include "run/huggingface/llama_cpp.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "run/gguf.h"
#include "text/byte_level_bpe.h"
#include "text/library_tokenizer.h"
#include "text/sentencepiece.h"

namespace metaformer {

namespace {

// The first part of a tensor's name, in the library and in llama.cpp.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> tensor_names = {
    {{"model.embed_tokens", "token_embd"},
     {"model.norm", "output_norm"},
     {"lm_head", "output"},
     {"input_layernorm", "attn_norm"},
     {"self_attn.q_proj", "attn_q"},
     {"self_attn.k_proj", "attn_k"},
     {"self_attn.v_proj", "attn_v"},
     {"self_attn.o_proj", "attn_output"},
     {"post_attention_layernorm", "ffn_norm"},
     {"mlp.gate_proj", "ffn_gate"},
     {"mlp.up_proj", "ffn_up"},
     {"mlp.down_proj", "ffn_down"}}};

// "blk.0.attn_q.weight" for "model.layers.0.self_attn.q_proj.weight".
std::string llama_cpp_name(std::string name) {
  constexpr std::string_view layers = "model.layers.";
  std::string block;
  if (name.starts_with(layers)) {
    const auto dot = name.find('.', layers.size());
    block = fmt::format("blk.{}.", name.substr(layers.size(), dot - layers.size()));
    name.erase(0, dot + 1);
  }
  const auto dot = name.rfind('.');
  const auto* found =
      std::ranges::find(tensor_names, name.substr(0, dot), [](const auto& entry) { return entry.first; });
  if (found == tensor_names.end()) throw std::logic_error("no name in llama.cpp: " + name);
  return fmt::format("{}{}{}", block, found->second, name.substr(dot));
}

// llama.cpp rotates features 2i and 2i + 1 of a head together, the library (and this program) i and i + half.
torch::Tensor with_neighbours_rotated(const torch::Tensor& rows, std::int64_t heads) {
  auto sizes = rows.sizes().vec();
  sizes.front() = rows.size(0) / heads / 2;
  sizes.insert(sizes.begin(), {heads, 2});
  return rows.reshape(sizes).transpose(1, 2).reshape(rows.sizes());
}

NamedTensors llama_cpp_tensors(const NamedTensors& theirs, std::int64_t heads, std::int64_t key_heads) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : theirs) {
    const bool is_query = name.find(".q_proj.") != std::string::npos;
    const bool is_key = name.find(".k_proj.") != std::string::npos;
    tensors.emplace_back(llama_cpp_name(name),
                         is_query || is_key ? with_neighbours_rotated(tensor, is_query ? heads : key_heads) : tensor);
  }
  return tensors;
}

// The types of tokens, as llama.cpp numbers them.
enum class TokenType : std::int32_t { text = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

[[noreturn]] void refuse_tokenizer(const std::string& why) {
  fail_usage("--format gguf: {}; llama.cpp has byte-level BPE, and data.tokenizer.kind bpe without lowercase", why);
}

constexpr const char* gpt2_words = "GPT-2";  // the expression of ByteLevel

constexpr const char* llama3_words = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                                     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* qwen2_words = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                                    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The expressions that cut a text into words, one after the other.
std::vector<std::string> word_expressions(const nlohmann::json& pre_tokenizer) {
  const auto& parts = json_member(pre_tokenizer, "pretokenizers");
  std::vector<std::string> expressions;
  for (const auto& part : parts.is_array() ? parts : nlohmann::json::array({pre_tokenizer})) {
    const auto& type = json_member(part, "type");
    if (type == "Digits") expressions.emplace_back(part.value("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    if (type == "Split") expressions.push_back(part.at("pattern").at("Regex").get<std::string>());
    if (type == "ByteLevel" && json_member(part, "use_regex") != false) expressions.emplace_back(gpt2_words);
  }
  return expressions;
}

// llama.cpp's name of the rules that cut a text into words, and whether words that are tokens are merged.
std::string pre_tokenizer_name(const nlohmann::json& file) {
  struct Rules {
    const char* name;
    std::vector<std::string> expressions;
    bool ignores_merges;
  };
  const std::array<Rules, 5> known = {{{"gpt-2", {gpt2_words}, false},
                                       {"smollm", {R"(\p{N})", gpt2_words}, false},
                                       {"llama-bpe", {llama3_words}, true},
                                       {"dbrx", {llama3_words}, false},
                                       {"qwen2", {qwen2_words}, false}}};
  const auto expressions = word_expressions(json_member(file, "pre_tokenizer"));
  const bool ignores_merges = json_member(json_member(file, "model"), "ignore_merges") == true;
  for (const auto& rules : known)
    if (rules.expressions == expressions && rules.ignores_merges == ignores_merges) return rules.name;
  refuse_tokenizer("the tokenizer cuts texts into words by other rules than those of GPT-2, LLaMA 3, Qwen 2 or SmolLM");
}

void add_tokens(std::vector<std::string> names, const std::vector<TokenType>& types, GgufMetadata& metadata) {
  std::vector<std::int32_t> numbers;
  for (const auto type : types) numbers.push_back(static_cast<std::int32_t>(type));
  metadata.emplace_back("tokenizer.ggml.tokens", std::move(names));
  metadata.emplace_back("tokenizer.ggml.token_type", std::move(numbers));
}

// `absent`: a token that texts do not have. It stands for the beginning and the end of a text if there are no tokens
// for them; without these keys llama.cpp takes others, and its generation ends at one of them.
void add_special_tokens(const SpecialTokens& tokens, std::int32_t absent, GgufMetadata& metadata) {
  const auto add = [&](const std::string& key, std::int32_t id) {
    metadata.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", key), static_cast<std::uint32_t>(id));
  };
  add("bos", tokens.bos.value_or(absent));
  add("eos", tokens.eos.empty() ? absent : tokens.eos.front());
  if (tokens.eos.size() > 1) add("eot", tokens.eos[1]);
  if (tokens.pad) add("padding", *tokens.pad);
  metadata.emplace_back("tokenizer.ggml.add_bos_token", false);
  metadata.emplace_back("tokenizer.ggml.add_eos_token", false);
}

// "a b" for each pair.
std::vector<std::string> merges_of(const nlohmann::json& file) {
  std::vector<std::string> merges;
  for (const auto& merge : file.at("model").at("merges"))
    merges.push_back(merge.is_array() ? fmt::format("{} {}", merge[0].get<std::string>(), merge[1].get<std::string>())
                                      : merge.get<std::string>());
  return merges;
}

void add_byte_level(const ByteLevelBpeTokenizer& tokenizer, GgufMetadata& metadata) {
  const auto file = parse_json(tokenizer.file());
  std::vector<std::string> names;
  std::vector<TokenType> types;
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const auto name = tokenizer.token_name(id);
    names.push_back(name.empty() ? fmt::format("[PAD{}]", id) : name);
    types.push_back(name.empty() ? TokenType::unused : TokenType::text);
  }
  for (const auto& token : json_member(file, "added_tokens"))
    types.at(token.at("id").get<std::size_t>()) =
        json_member(token, "special") == true ? TokenType::control : TokenType::user_defined;
  const auto nul = std::ranges::find(names, to_byte_level(std::string(1, '\0'))) - names.begin();
  metadata.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  metadata.emplace_back("tokenizer.ggml.pre", pre_tokenizer_name(file));
  add_tokens(std::move(names), types, metadata);
  metadata.emplace_back("tokenizer.ggml.merges", merges_of(file));
  add_special_tokens(tokenizer.special_tokens(), static_cast<std::int32_t>(nul), metadata);
}

TokenType type_of(PieceKind kind) {
  switch (kind) {
    case PieceKind::text:
      return TokenType::text;
    case PieceKind::unknown:
      return TokenType::unknown;
    case PieceKind::byte:
      return TokenType::byte;
    case PieceKind::control:
      return TokenType::control;
    case PieceKind::unused:
      return TokenType::unused;
  }
  throw std::logic_error("unknown kind of piece");
}

void add_pieces(const SentencePieceTokenizer& tokenizer, GgufMetadata& metadata) {
  if (tokenizer.kind() != BpeTokenizerOptions::kind)
    refuse_tokenizer(fmt::format("the tokenizer is {}, and llama.cpp merges the pieces of a text by their scores",
                                 tokenizer.kind()));
  // llama.cpp's sentencepiece has no more rules than the library `tokenizers`.
  if (const auto written = to_library_tokenizer(tokenizer); written.file.empty())
    refuse_tokenizer("the tokenizer cannot be written: " + written.problem);
  std::vector<std::string> names;
  std::vector<float> scores;
  std::vector<TokenType> types;
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    names.push_back(tokenizer.token_name(id));
    scores.push_back(static_cast<float>(tokenizer.score(id)));
    types.push_back(type_of(tokenizer.piece_kind(id)));
  }
  const auto unknown = tokenizer.unknown_id().value();
  metadata.emplace_back("tokenizer.ggml.model", std::string("llama"));
  metadata.emplace_back("tokenizer.ggml.pre", std::string("default"));
  add_tokens(std::move(names), types, metadata);
  metadata.emplace_back("tokenizer.ggml.scores", std::move(scores));
  metadata.emplace_back("tokenizer.ggml.unknown_token_id", static_cast<std::uint32_t>(unknown));
  add_special_tokens(tokenizer.special_tokens(), unknown, metadata);
  metadata.emplace_back("tokenizer.ggml.add_space_prefix", false);
}

void add_tokenizer(const Tokenizer& tokenizer, GgufMetadata& metadata) {
  if (const auto* bytes = dynamic_cast<const ByteLevelBpeTokenizer*>(&tokenizer))
    return add_byte_level(*bytes, metadata);
  if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer))
    return add_pieces(*pieces, metadata);
  refuse_tokenizer(
      fmt::format("the tokenizer is {}, which llama.cpp lacks", tokenizer.to_json().at("kind").get<std::string>()));
}

// llama.cpp's LLaMA has one activation, and rotates pairs of features.
void require_llama_cpp(const TransformerConfig& config) {
  const auto& activation = std::get<GatedConfig>(config.feed_forward).activation;
  if (!is<SiluConfig>(activation))
    fail_usage("--format gguf: model.feed_forward.activation is {} and must be silu in llama.cpp", kind_of(activation));
  if (config.head_width() % 2 != 0)
    fail_usage("--format gguf: heads of {} features (model.width / model.heads) cannot be rotated in pairs",
               config.head_width());
}

}  // namespace

std::string llama_cpp_file(const DescribedModel& model, const NamedTensors& theirs, const Tokenizer& tokenizer,
                           const std::string& name) {
  const auto& config = model.config;
  require_llama_cpp(config);
  const auto key_heads = std::get<ScaledDotProductOptions>(config.mixer).key_heads(config.mixer_shape());
  const auto count = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  GgufMetadata metadata = {
      {"general.architecture", std::string("llama")},
      {"general.name", name},
      {"general.file_type", std::uint32_t{0}},  // all tensors in float32
      {"llama.vocab_size", count(model.vocabulary)},
      {"llama.context_length", count(config.context)},
      {"llama.embedding_length", count(config.width)},
      {"llama.block_count", count(config.layers)},
      {"llama.feed_forward_length", count(config.hidden_width())},
      {"llama.attention.head_count", count(config.heads)},
      {"llama.attention.head_count_kv", count(key_heads)},
      {"llama.attention.layer_norm_rms_epsilon", static_cast<float>(epsilon_of(config.norm))},
      {"llama.rope.dimension_count", count(config.head_width())},
      {"llama.rope.freq_base", static_cast<float>(std::get<RotaryPositionsConfig>(config.positions).base)}};
  add_tokenizer(tokenizer, metadata);
  return to_gguf(metadata, llama_cpp_tensors(theirs, config.heads, key_heads));
}

}  // namespace metaformer
