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

TEST_CASE("a model that transformers lacks is exported with Python files, which a note names", "[cli]") {
  const Program program;
  program.train("run", {"model.mixer=metric"});
  program.succeed("export --run run --out exported");
  CHECK_THAT(program.read("err"), ContainsSubstring("trust_remote_code=True"));
  CHECK(program.has("exported/modeling_metaformer.py"));
  CHECK_THAT(program.succeed("config import exported"), Mentions("metric|init_from: |/exported"));
  program.succeed("config import exported --out exported.yaml");
  CHECK(program.shell("mkdir sub && cd sub && \"$PROGRAM\" config check ../exported.yaml > out") == 0);
  CHECK(program.read("err").empty());
}

TEST_CASE("adapters are exported for peft, with their base if the library has it", "[cli]") {
  const Program program;
  const Arguments like_gpt2 = {"model.mixer=scaled_dot_product", "model.bias=true"};
  program.train("source", like_gpt2);
  const Arguments lora = joined(like_gpt2, {"train.init_from=source", "train.lora={rank: 2, alpha: 3}"});
  program.train("run", lora);
  const auto json = program.json("export --run run --format peft --out adapter");
  CHECK(json.at("files") == Json::array({"adapter_config.json", "adapter_model.safetensors"}));
  const auto config = program.read_json("adapter/adapter_config.json");
  CHECK(config.at("r") == 2);
  CHECK(config.at("lora_alpha") == 3);
  CHECK(config.at("fan_in_fan_out") == true);
  CHECK(config.at("target_modules") == Json::array({"transformer.h.0.attn.c_attn", "transformer.h.0.attn.c_proj"}));
  CHECK(config.at("base_model_name_or_path").is_null());  // a run
  program.succeed("export --run run --out merged");
  program.train("full", joined(lora, {"train.lora.full=[transformer.final_norm]"}));
  program.refuse_in_one_line("export --run full --format peft --out other", 2,
                             {"--format peft: |transformer.final_norm|train.lora.full|--format huggingface"});
  CHECK_FALSE(program.has("other"));
}

TEST_CASE("a model or folder that cannot be exported or imported is refused with a reason", "[cli]") {
  const Program program;
  program.train("run", {"model.mixer=metric"});
  program.folder().write("bert/config.json", R"({"model_type": "bert"})");
  for (const auto& [arguments, code, text] : std::vector<std::tuple<Arguments, int, std::string>>{
           {"export --run run", 2, "--out is required"},
           {"export --run run --out exported --format onnx", 2,
            "--format onnx: expected huggingface, safetensors, peft or gguf"},
           {"export --run run --out exported --format peft", 2, "train.lora.rank is 0|--format huggingface"},
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
