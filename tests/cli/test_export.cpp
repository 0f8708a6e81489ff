// export, and config import: a run leaves the program as a GPT-2 and comes back. tests/python/compare_pretrained.py
// compares both with the library transformers.

#include "cli/program.h"

namespace {

const Arguments gpt2 = {"--set", "model.mixer=scaled_dot_product", "--set", "model.bias=true"};

Arguments joined(Arguments first, const Arguments& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

TEST_CASE("a run is exported in every format, once", "[cli]") {
  const Program program;
  program.succeed(joined({"train", "--config", "small.yaml", "--out", "run"}, gpt2));
  const auto format = GENERATE(as<std::string>{}, "huggingface", "safetensors");
  const Arguments command = {"export", "--run", "run", "--checkpoint", "last", "--format", format, "--out", "exported"};
  const auto json = nlohmann::json::parse(program.succeed(joined(command, {"--json"})));
  CHECK(json.at("step") == 4);
  CHECK(json.at("format") == format);
  CHECK(json.at("folder") == "exported");
  for (const std::string file : json.at("files"))
    CHECK(std::filesystem::is_regular_file(program.folder() / "exported" / file));
  const auto again = program.run(command);
  CHECK(again.code == 2);
  CHECK_THAT(again.err, ContainsSubstring("exported: exists already"));
}

TEST_CASE("what cannot be exported is refused with a reason", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--set", "model.mixer=metric", "--out", "run"});
  const auto [arguments, text] = GENERATE(table<Arguments, std::string>({
      {{"--run", "run"}, "--out is required"},
      {{"--run", "run", "--out", "exported"}, "model.mixer.kind is metric and must be scaled_dot_product"},
      {{"--run", "run", "--out", "exported", "--format", "onnx"}, "--format onnx: expected huggingface or safetensors"},
      {{"--run", "run", "--out", "exported", "--checkpoint", "step-7"}, "it has step-4 or step-2"},
      {{"--run", "nowhere", "--out", "exported"}, "--run nowhere: no such run"},
  }));
  const auto result = program.run(joined({"export"}, arguments));
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring(text));
  CHECK_FALSE(std::filesystem::exists(program.folder() / "exported"));
}

TEST_CASE("an exported model is a config that can be checked and trained", "[cli]") {
  const Program program;
  program.succeed(joined({"train", "--config", "small.yaml", "--out", "run"}, gpt2));
  const auto exported = program.run({"export", "--run", "run", "--out", "gpt2"});
  CHECK(exported.code == 0);
  CHECK(exported.err.empty());
  program.succeed({"config", "import", "gpt2/", "--out", "gpt2.yaml"});
  CHECK(read_text(program.folder() / "gpt2.yaml") == program.succeed({"config", "import", "gpt2/"}));
  const auto dumped = nlohmann::json::parse(program.succeed({"config", "dump", "gpt2.yaml", "--json"}));
  const auto config =
      nlohmann::json::parse(program.succeed({"config", "dump", "--config", "run/config.yaml", "--json"}));
  CHECK(dumped.at("model") == config.at("model"));
  CHECK(dumped.at("train").at("init_from") == (program.folder() / "gpt2").string());
  CHECK_THAT(program.succeed({"config", "check", "gpt2.yaml"}), ContainsSubstring("valid"));
  // The tokenizer comes back, too: a training without steps that change anything has the loss of the run.
  program.succeed({"train", "gpt2.yaml", "--set", "data.path=text.txt", "--set", "train.steps=1", "--set",
                   "train.batch_size=2", "--out", "again"});
  CHECK(read_text(program.folder() / "again/checkpoints/last/tokenizer.json") ==
        read_text(program.folder() / "run/checkpoints/last/tokenizer.json"));
}

TEST_CASE("config import says what a folder lacks", "[cli]") {
  const Program program;
  const auto missing = program.run({"config", "import", "nowhere"});
  CHECK(missing.code == 3);
  CHECK_THAT(missing.err,
             ContainsSubstring("nowhere: no such folder; expected the folder of a model, with config.json"));
  CHECK(program.run({"config", "import", "nowhere", "--out", "new.yaml"}).code == 3);
  CHECK_FALSE(std::filesystem::exists(program.folder() / "new.yaml"));
  program.folder().write("bert/config.json", R"({"model_type": "bert"})");
  const auto unknown = program.run({"config", "import", "bert"});
  CHECK(unknown.code == 3);
  CHECK_THAT(unknown.err,
             ContainsSubstring("bert/config.json: model_type is \"bert\"; only gpt2 or llama is supported"));
}
