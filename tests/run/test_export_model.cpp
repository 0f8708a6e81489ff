// Export of models and tokenizers as Hugging Face folders and safetensors; the configs that such folders support.

#include "config/loader.h"
#include "config/writer.h"
#include "model/make_model.h"
#include "run/huggingface/architecture.h"
#include "run/huggingface/model_folder.h"
#include "run/safetensors.h"
#include "support/byte_level_bpe.h"
#include "support/failure.h"
#include "support/temporary_folder.h"
#include "support/torch_catch.h"
#include "text/byte_level_bpe.h"
#include "text/sentencepiece.h"
#include "text/special_tokens.h"
#include "text/symbol_tokenizers.h"

namespace metaformer::test_export_model {

namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// A model with random weights.
struct Model {
  ExperimentConfig config;
  Codec codec;
  std::shared_ptr<SequenceModel> network;
  NamedTensors tensors;

  explicit Model(const Names& overrides, std::unique_ptr<Tokenizer> tokenizer = std::make_unique<NumberTokenizer>(11))
      : config(default_experiment(overrides).config), codec{.tokenizer = std::move(tokenizer), .labels = {}} {
    if (is<ClassificationConfig>(config.task)) codec.labels = {"no", "yes"};
    network = make_model(config, sizes_of(codec));
    const torch::NoGradGuard no_grad;
    torch::manual_seed(3);
    for (auto& parameter : network->parameters()) parameter.normal_();
    tensors = named_state(*network);
  }

  Names write(ExportFormat format, const fs::path& folder) const {
    return export_model({.config = config, .tensors = tensors, .codec = codec, .step = 7}, format, folder);
  }
};

const Names small_gpt2 = {"model.layers=1",  "model.heads=2",   "model.width=8",
                          "model.context=4", "model.bias=true", "model.mixer=scaled_dot_product"};

Names with(Names overrides, const std::string& more) {
  overrides.push_back(more);
  return overrides;
}

// The files of an export: those of every model, and others.
Names files(const Names& others) {
  Names all = {"config.json", "generation_config.json", "model.safetensors"};
  all.insert(all.end(), others.begin(), others.end());
  std::ranges::sort(all);
  return all;
}
const Names python_files = {"attention_metaformer.py", "configuration_metaformer.py", "mixers_metaformer.py",
                            "modeling_metaformer.py"};
const Names of_library = {"special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"};

TransformerConfig config_of(const Names& overrides) { return transformer(default_experiment(overrides).config); }

const Names like_llama = {"model.mixer=scaled_dot_product", "model.positions=rotary", "model.norm=rms_norm",
                          "model.feed_forward=gated"};
const Names like_gpt2 = {"model.mixer=scaled_dot_product", "model.bias=true"};

Names differences(Names overrides, const Names& needed) {
  overrides.insert(overrides.begin(), needed.begin(), needed.end());
  return config_differences(config_of(overrides), config_of(needed));
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("a config does not differ from itself or in keys that do not change the function of the model",
          "[config_differences]") {
  for (const auto& needed : {like_llama, like_gpt2}) CHECK(differences({}, needed).empty());
  for (const auto* free :
       {"model.dropout=0.1", "model.embedding.std=1", "model.embedding.dropout=0.5", "model.mixer.backend=reference",
        "model.mixer.score_std=null", "model.feed_forward.chunks=2"})
    CHECK(differences({free}, like_gpt2).empty());
  for (const auto* free : {"model.memory=32", "model.context=1024", "model.feed_forward.ratio=2.67"})  // also 344 units
    CHECK(differences({free}, like_llama).empty());
  CHECK(config_differences(config_of(like_gpt2), gpt2().closest(config_of(like_gpt2))).empty());
  CHECK(config_differences(config_of(like_llama), llama().closest(config_of(like_llama))).empty());
  CHECK_FALSE(config_differences(config_of(like_llama), gpt2().closest(config_of(like_llama))).empty());
}

TEST_CASE("every other difference is a line with both values", "[config_differences]") {
  const auto [needed, key, value, right] = GENERATE(table<Names, std::string, std::string, std::string>({
      {like_gpt2, "layers", "2", "4"},
      {like_gpt2, "heads", "8", "4"},
      {like_gpt2, "context", "32", "64"},
      {like_gpt2, "bias", "false", "true"},
      {like_gpt2, "embedding.tie", "false", "true"},
      {like_gpt2, "embedding.scale", "sqrt_width", "none"},
      {like_gpt2, "norm.epsilon", "0.001", "1.0e-05"},
      {like_gpt2, "norm.final", "false", "true"},
      {like_gpt2, "norm.kind", "rms_norm", "layer_norm"},
      {like_gpt2, "residual", "false", "true"},
      {like_gpt2, "blocks", "reversible", "plain"},
      {like_gpt2, "mixer.kind", "metric", "scaled_dot_product"},
      {like_gpt2, "mixer.qk_norm", "true", "false"},
      {like_gpt2, "feed_forward.activation.kind", "relu", "gelu"},
      {like_gpt2, "feed_forward.ratio", "2", "4"},
      {like_llama, "positions.base", "500", "10000"},
      {like_llama, "positions.kind", "none", "rotary"},
  }));
  CHECK(differences({fmt::format("model.{}={}", key, value)}, needed) ==
        Names{fmt::format("model.{} is {} and must be {}", key, value, right)});
}

TEST_CASE("an exported GPT-2 is read back unchanged", "[export]") {
  const TemporaryFolder folder;
  const Model model(small_gpt2,
                    std::make_unique<ByteLevelBpeTokenizer>(RandomMerges(1, 10, "ab").file().dump(), 0, "t"));
  CHECK(model.write(ExportFormat::huggingface, folder / "gpt2") == files(of_library));
  CHECK(is_huggingface_folder(folder / "gpt2"));
  const auto read = read_huggingface(folder / "gpt2");
  copy_by_name(read.tensors, named_state(*model.network), "the export");
  CHECK(read.tokenizer->to_json() == model.codec.tokenizer->to_json());
}

TEST_CASE("a tokenizer is written in the library's format, and in our own if that cannot be read back", "[export]") {
  const TemporaryFolder folder;
  const auto names = [&](std::unique_ptr<Tokenizer> tokenizer) {
    fs::remove_all(folder / "out");
    return Model(small_gpt2, std::move(tokenizer)).write(ExportFormat::huggingface, folder / "out");
  };
  CHECK(names(std::make_unique<NumberTokenizer>(9)) == files(with(of_library, "metaformer_tokenizer.json")));
  const BpeTokenizerOptions options{.vocabulary = 300, .whitespace = Whitespace::kept};
  const auto pieces = train_sentencepiece(options, "to be or not to be that is the question");
  CHECK(names(std::make_unique<SentencePieceTokenizer>("bpe", Whitespace::kept, pieces, "t")) ==
        files(with(of_library, "tokenizer.model")));
  CHECK(read_text(folder / "out/tokenizer.model") == pieces);
  CHECK(read_huggingface(folder / "out").tokenizer->encode("to be") ==
        SentencePieceTokenizer("bpe", Whitespace::kept, pieces, "t").encode("to be"));
  const UnigramTokenizerOptions lower{.vocabulary = 300, .lowercase = true, .whitespace = Whitespace::kept};
  CHECK(names(std::make_unique<SentencePieceTokenizer>("unigram", Whitespace::kept,
                                                       train_sentencepiece(lower, "to be or not to be"), "t")) ==
        files({"metaformer_tokenizer.json"}));
}

TEST_CASE("a language model other than GPT-2 or LLaMA is written with its Python files, and read back unchanged",
          "[export]") {
  const auto override = GENERATE(as<std::string>(), "model.mixer=metric", "model.memory=4", "model.norm=rms_norm",
                                 "model.feed_forward.activation={kind: silu, beta: 2}",
                                 "model.mixer=[{mixer: mamba2, layers: 1}]", "task={kind: sort, length: 2}");
  const TemporaryFolder folder;
  const Model model(with(with(small_gpt2, "model.mixer=metric"), override));
  auto others = with(of_library, "metaformer_tokenizer.json");
  others.insert(others.end(), python_files.begin(), python_files.end());
  CHECK(model.write(ExportFormat::huggingface, folder / "out") == files(others));
  const auto config = nlohmann::json::parse(read_text(folder / "out/config.json"));
  CHECK(config.at("vocab_size") == 11);
  CHECK(config.at("model") == nlohmann::json(config_to_json(model.config).at("model")));
  CHECK(nlohmann::json::parse(read_text(folder / "out/generation_config.json")).at("use_cache") == false);
  const auto read = read_huggingface(folder / "out");
  CHECK(config_to_json({.model = read.config}).at("model") == config_to_json(model.config).at("model"));
  CHECK(to_safetensors(read.tensors) == to_safetensors(model.tensors));
  CHECK(read.tokenizer->to_json() == model.codec.tokenizer->to_json());
}

TEST_CASE("a model without blocks is written with its Python files, and not read", "[export]") {
  const auto kind = GENERATE(as<std::string>(), "lstm", "gru", "feed_forward");
  const TemporaryFolder folder;
  const Model model({fmt::format("model={{kind: {}, width: 8}}", kind)});
  const auto names = model.write(ExportFormat::huggingface, folder / "out");
  for (const auto& name : python_files) CHECK(std::ranges::find(names, name) != names.end());
  const auto what = message_of(ExitCode::data, [&] { read_huggingface(folder / "out"); });
  CHECK_THAT(what, Mentions("config.json|model.kind is " + kind));
}

TEST_CASE("damage to an exported model with Python files is an error that names it", "[export]") {
  const TemporaryFolder folder;
  const Model model(with(small_gpt2, "model.mixer=metric"));
  model.write(ExportFormat::huggingface, folder / "out");
  const auto [key, value, text] = GENERATE(
      table<std::string, nlohmann::json, std::string>({{"/model/width", 16, "has shape"},
                                                       {"/model/layers", 2, "it has no tensor"},
                                                       {"/model/layers", 0, "model.layers"},
                                                       {"/model/mixer/kind", "unknown", "model.mixer"},
                                                       {"/model/heads", 3, "model.heads"},
                                                       {"/vocab_size", 5, "its tokenizer has 11 tokens"},
                                                       {"/model", "none", "model is \"none\"; expected an object"}}));
  auto config = nlohmann::ordered_json::parse(read_text(folder / "out/config.json"));
  config[nlohmann::ordered_json::json_pointer(key)] = value;
  folder.write("out/config.json", config.dump());
  CHECK_THAT(message_of(ExitCode::data, [&] { read_huggingface(folder / "out"); }), ContainsSubstring(text));
}

TEST_CASE("a model that is no language model is refused, but can be exported as safetensors", "[export]") {
  const auto task = GENERATE(as<std::string>(), "classification", "masked_language_model");
  const TemporaryFolder folder;
  const Model model(with(small_gpt2, "task=" + task));
  const auto what = message_of(ExitCode::usage, [&] { model.write(ExportFormat::huggingface, folder / "out"); });
  CHECK_THAT(what, Mentions("task.kind is " + task + "|language_model|--format safetensors"));
  CHECK(files_in(folder.path()) == 0);
  CHECK(model.write(ExportFormat::safetensors, folder / "safetensors").size() == 3 + model.codec.labels.size() / 2);
}

TEST_CASE("an existing folder is not changed, and a failed export leaves nothing", "[export]") {
  const TemporaryFolder folder;
  const Model model(small_gpt2);
  fs::create_directory(folder / "empty");
  folder.write("full/note", "kept");
  folder.write("file", "kept");
  fs::create_symlink("nowhere", folder / "link");
  for (const auto* name : {"empty", "full", "full/", "file", "link"}) {
    const auto what = message_of(ExitCode::usage, [&] { model.write(ExportFormat::safetensors, folder / name); });
    CHECK_THAT(what, ContainsSubstring("exists already"));
  }
  CHECK(failure([&] { model.write(ExportFormat::safetensors, folder / "file/out"); }).first == ExitCode::failure);
  CHECK(files_in(folder / "full") == 1);
  CHECK(files_in(folder.path()) == 4);
  model.write(ExportFormat::safetensors, folder / "new/folder/out");  // parent folders are created
  CHECK(files_in(folder / "new/folder") == 1);
}

}  // namespace metaformer::test_export_model
