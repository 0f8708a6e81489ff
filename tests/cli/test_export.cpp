// export, and config import: a run leaves the program as a GPT-2 and comes back. tests/python/compare_pretrained.py
// compares both with the library transformers.

#include "cli/program.h"

namespace {

const Arguments gpt2 = {"model.mixer=scaled_dot_product", "model.bias=true"};

}  // namespace

TEST_CASE("a run is exported in every format, once", "[cli]") {
  const Program program;
  program.train("run", gpt2);
  const auto format = GENERATE(as<std::string>{}, "huggingface", "safetensors");
  const Arguments command = "export --run run --checkpoint last --out exported --format " + format;
  const auto json = program.json(command);
  CHECK(json.at("step") == 4);
  CHECK(json.at("format") == format);
  CHECK(json.at("folder") == "exported");
  for (const std::string file : json.at("files")) CHECK(fs::is_regular_file(program.folder() / "exported" / file));
  program.refuse(command, 2, {"exported: exists already"});
}

TEST_CASE("what cannot be exported is refused with a reason", "[cli]") {
  const Program program;
  program.train("run", {"model.mixer=metric"});
  const auto [arguments, text] = GENERATE(table<Arguments, std::string>({
      {"export --run run", "--out is required"},
      {"export --run run --out exported", "model.mixer.kind is metric and must be scaled_dot_product"},
      {"export --run run --out exported --format onnx", "--format onnx: expected huggingface or safetensors"},
      {"export --run run --out exported --checkpoint step-7", "step-4 or step-2"},
      {"export --run nowhere --out exported", "--run nowhere: "},
  }));
  program.refuse(arguments, 2, {text});
  CHECK_FALSE(program.has("exported"));
}

TEST_CASE("an exported model is a config that can be checked and trained", "[cli]") {
  const Program program;
  program.train("run", gpt2);
  program.succeed("export --run run --out gpt2");
  CHECK(program.read("err").empty());
  program.succeed("config import gpt2/ --out gpt2.yaml");
  CHECK(program.read("gpt2.yaml") == program.succeed("config import gpt2/"));
  const auto dumped = program.json("config dump gpt2.yaml");
  CHECK(dumped.at("model") == program.json("config dump --config run/config.yaml").at("model"));
  CHECK(dumped.at("train").at("init_from") == program.at("gpt2"));
  CHECK_THAT(program.succeed("config check gpt2.yaml"), ContainsSubstring("valid"));
  // The tokenizer comes back, too.
  program.succeed("train gpt2.yaml --set data.path=text.txt --set train.steps=1 --set train.batch_size=2 --out again");
  const std::string tokenizer = "/checkpoints/last/tokenizer.json";
  CHECK(program.read("again" + tokenizer) == program.read("run" + tokenizer));
}

TEST_CASE("config import says what a folder lacks", "[cli]") {
  const Program program;
  program.refuse("config import nowhere", 3, {"nowhere: no such folder", "config.json"});
  program.refuse("config import nowhere --out new.yaml", 3);
  CHECK_FALSE(program.has("new.yaml"));
  program.folder().write("bert/config.json", R"({"model_type": "bert"})");
  program.refuse("config import bert", 3, {"bert/config.json: model_type is \"bert\""});
}
