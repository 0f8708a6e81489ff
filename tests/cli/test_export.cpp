// export, and config import. tests/python/compare_pretrained.py and compare_exported.py compare exports with the
// library transformers, and import them again.

#include "cli/program.h"

TEST_CASE("a run is exported in every format, but not into an existing folder", "[cli]") {
  const Program program;
  program.train("run", {"model.mixer=scaled_dot_product", "model.bias=true"});
  const auto format = GENERATE(as<std::string>{}, "huggingface", "safetensors");
  const Arguments command = "export --run run --checkpoint last --out exported --format " + format;
  const auto json = program.json(command);
  if (format == "huggingface") CHECK(program.read("err").empty());
  CHECK(json.at("step") == 4);
  CHECK(json.at("format") == format);
  CHECK(json.at("folder") == "exported");
  for (const std::string file : json.at("files")) CHECK(fs::is_regular_file(program.folder() / "exported" / file));
  program.refuse(command, 2, {"exported: exists already"});
}

TEST_CASE("a model or folder that cannot be exported or imported is refused with a reason", "[cli]") {
  const Program program;
  program.train("run", {"model.mixer=metric"});
  program.folder().write("bert/config.json", R"({"model_type": "bert"})");
  for (const auto& [arguments, code, text] : std::vector<std::tuple<Arguments, int, std::string>>{
           {"export --run run", 2, "--out is required"},
           {"export --run run --out exported", 2, "model.mixer.kind|metric|scaled_dot_product"},
           {"export --run run --out exported --format onnx", 2, "--format onnx: expected huggingface or safetensors"},
           {"export --run run --out exported --checkpoint step-7", 2, "step-4 or step-2"},
           {"export --run nowhere --out exported", 2, "--run nowhere: "},
           {"config import nowhere", 3, "nowhere: no such folder"},
           {"config import nowhere --out exported", 3, "config.json"},
           {"config import bert", 3, "bert/config.json: model_type is \"bert\""}}) {
    CAPTURE(arguments);
    program.refuse(arguments, code, {text});
    CHECK_FALSE(program.has("exported"));
  }
}
