// The executable as scripts see it: exit codes, what goes to stdout, one line on stderr when something is wrong.

#include <set>
#include <sstream>

#include "cli/program.h"

TEST_CASE("mistakes end with one line on stderr and the documented exit code", "[cli]") {
  const Program program;
  const auto& folder = program.folder();
  folder.write("unknown.yaml", "train: {learning_rat: 1}\n");
  folder.write("heads.yaml", "model: {heads: 3}\n");
  folder.write("long.yaml", "base: small.yaml\nmodel: {context: 4096}\n");
  folder.write("empty.txt", "");
  folder.write("latin1.txt", std::string(500, 'x') + "\xe9" + std::string(500, 'y'));
  folder.write("full/file", "");
  const auto [arguments, code, text] = GENERATE(table<Arguments, int, std::string>({
      {{}, 2, "a command is missing"},
      {{"tran"}, 2, "did you mean 'train'?"},
      {{"train"}, 2, "--config"},
      {{"train", "--config", "nope.yaml"}, 2, "nope.yaml: no such config"},
      {{"train", "--config", "smal.yaml"}, 2, "did you mean 'small.yaml'?"},
      {{"train", "--config", "unknown.yaml"},
       2,
       "unknown.yaml:1:9: train.learning_rat: unknown key; did you mean 'train.learning_rate'?"},
      {{"train", "--config", "heads.yaml"}, 2, "heads.yaml:1:16: model.heads: 3 heads do not divide model.width 128"},
      {{"train", "--config", "small.yaml", "--stes", "3"}, 2, "--stes"},
      {{"train", "--config", "small.yaml", "--set", "train.steps=x"},
       2,
       "--set train.steps=x: train.steps: expected an integer"},
      {{"train", "--config", "small.yaml", "--device", "tpu"}, 2, "--device tpu: expected auto, cpu, cuda or cuda:N"},
      {{"train", "--config", "small.yaml", "--out", "full"}, 2, "--out full: already exists"},
      {{"train", "--config", "small.yaml", "--out", "/proc/no/run"}, 2, "--out /proc/no/run: cannot be made"},
      {{"train", "--config", "small.yaml", "--resume"}, 2, "--resume needs --out"},
      {{"train", "--config", "long.yaml"}, 3, "model.context 4096 needs at least 4097"},
      {{"train", "--config", "small.yaml", "--set", "data.path=missing.txt"}, 3, "missing.txt: no such file"},
      {{"train", "--config", "small.yaml", "--set", "data.path=empty.txt"}, 3, "empty.txt: the corpus is empty"},
      {{"train", "--config", "small.yaml", "--set", "data.path=latin1.txt"},
       3,
       "not valid UTF-8: byte 0xe9 at offset 500"},
      {{"evaluate"}, 2, "--run runs/latest: no such run"},
      {{"evaluate", "--run", "full"}, 2, "--run full: not a run"},
      {{"sample", "--run", "nowhere"}, 2, "--run nowhere: no such run"},
      {{"config", "check", "unknown.yaml"}, 2, "did you mean 'train.learning_rate'?"},
      {{"config", "explain", "train.stepz"}, 2, "did you mean 'train.steps'?"},
      {{"train", "--config", "text_classifier.yaml"}, 2, "data.path is not set"},
      {{"train", "--config", "text_classifier.yaml", "--set", "data.path=text.txt"}, 3, "text.txt:1: "},
      {{"train", "--config", "sorter_metric.yaml", "--set", "data.path=text.txt"},
       2,
       "data: unknown key; only task: language_model, masked_language_model, classification or "
       "sequence_to_sequence have it"},
      {{"train", "--config", "sorter_metric.yaml", "--set", "task.length=9"}, 2, "model.context: 11 is too short"},
      {{"train", "--config", "small.yaml", "--set", "data.test_path=text.txt"},
       2,
       "data.test_path: unknown key for task 'language_model'; only task: classification or sequence_to_sequence have "
       "it"},
      {{"train", "--config", "small.yaml", "--set", "data.format=csv"},
       2,
       "a language model reads text or jsonl, not csv"},
      {{"train", "--config", "small.yaml", "--set", "data.separate_documents=true"},
       2,
       "text.txt, which is one document; JSON lines and folders have several"},
      {{"train", "--config", "small.yaml", "--set", "data.tokenizer={kind: unigram, whitespace: kept, sampling: 0.2}"},
       2,
       "data.tokenizer.sampling: 0.2 has no effect on a language model"},
      {{"train", "--config", "text_classifier.yaml", "--set", "data.path=text.txt", "data.format=text"},
       2,
       "classification reads csv, tsv or jsonl"},
      {{"train", "--config", "text_classifier.yaml", "--set", "data.path=text.txt", "data.separate_documents=true"},
       2,
       "data.separate_documents: unknown key for task 'classification'; only task: language_model or "
       "masked_language_model have it"},
      {{"train", "--config", "small.yaml", "--set", "data.tokenizer={kind: word, whitespace: dropped}"},
       2,
       "data.tokenizer.whitespace: a language"},
      {{"train", "--config", "small.yaml", "--set", "task=classification", "--set", "data.rating.highest=5"},
       2,
       "data.rating.highest: means nothing without data.rating.positive_from"},
      {{"train", "--config", "reviews_amazon.yaml", "--set", "data.rating.highest=3"},
       2,
       "data.rating.highest: 3 is below data.rating.positive_from 4"},
      {{"train", "--config", "reviews_amazon.yaml", "--set", "data.rating.lowest=4"},
       2,
       "data.rating.lowest: 4 is not below data.rating.positive_from 4"},
      {{"train", "--config", "small.yaml", "--set", "data.tokenizer={kind: word, joiners: '-x'}"},
       2,
       "data.tokenizer.joiners: '-x' is not a list of ASCII marks"},
      {{"predict", "--run", "nowhere"}, 2, "--run nowhere: no such run"},
      {{"predict", "missing.txt"}, 3, "'missing.txt': No such file"},
      {{"data", "fetch", "tinyshakespear"}, 2, "did you mean 'tinyshakespeare'?"},
  }));
  const auto result = program.run(arguments);
  INFO("stderr: " << result.err);
  CHECK(result.code == code);
  CHECK_THAT(result.err, ContainsSubstring(text));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK(result.out.empty());
  CHECK_FALSE(std::filesystem::exists(folder / "runs"));
}

TEST_CASE("train, evaluate and sample work together", "[cli]") {
  const Program program;
  const auto trained = program.run({"train", "--config", "small.yaml", "--json"});
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  const auto run = program.folder() / "runs/latest";
  const auto summary = nlohmann::json::parse(trained.last_line());
  CHECK(summary == nlohmann::json::parse(read_text(run / "summary.json")));
  for (const auto* key : {"steps", "train_loss", "val_loss", "best_val_loss", "parameters", "mixer_parameters",
                          "ms_per_step", "tokens_per_second", "peak_memory_bytes"})
    CHECK(summary.at(key).is_number());
  for (const auto* name :
       {"config.yaml", "environment.json", "metrics.jsonl", "train.log", "checkpoints/best/model.safetensors",
        "checkpoints/last/state.safetensors", "checkpoints/last/meta.json", "checkpoints/last/tokenizer.json"})
    CHECK(std::filesystem::exists(run / name));
  // The last line of the log is the run's path.
  const auto log = trained.err.substr(0, trained.err.size() - 1);
  CHECK(std::filesystem::equivalent(program.folder() / log.substr(log.rfind('\n') + 1), run));

  const auto evaluated = nlohmann::json::parse(program.succeed({"evaluate", "--checkpoint", "last", "--json"}));
  CHECK(evaluated.at("loss").get<double>() == Approx(summary.at("val_loss").get<double>()).epsilon(1e-6));
  const auto refused = program.run({"evaluate", "--split", "test"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err,
             ContainsSubstring("error: --split test: this run has no such split; expected train or validation\n"));
  const auto warmup = program.run({"config", "check", "small.yaml", "--set", "train.schedule.warmup_steps=4"});
  CHECK(warmup.code == 0);
  CHECK(warmup.err ==
        "warning: small.yaml:3:16: train.steps: 4 is not above train.schedule.warmup_steps 4: all of the training is "
        "warm-up\n");

  const auto sampled = program.succeed({"sample", "--prompt", "to be", "--tokens", "40", "--seed", "3"});
  CHECK(sampled.starts_with("to be"));
  CHECK(sampled.size() == 5 + 40 + 1);
  CHECK(sampled == program.succeed({"sample", "--prompt", "to be", "--tokens", "40", "--seed", "3"}));
  CHECK(sampled == program.succeed({"sample", "--prompt", "to be", "--tokens", "40", "--seed", "3", "--no-cache"}));
  CHECK(sampled == program.succeed({"sample", "--prompt", "to be", "--tokens", "40", "--seed", "3", "--no-graph"}));
  const auto greedy = nlohmann::json::parse(
      program.succeed({"sample", "--prompt", "to", "--tokens", "9", "--temperature", "0", "--json"}));
  CHECK(greedy.at("tokens") == 9);
  const auto unknown = program.run({"sample", "--prompt", "~"});
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, ContainsSubstring("the character '~' (U+007E) is not among"));
  const auto other_checkpoint = program.run({"sample", "--checkpoint", "step-99"});
  CHECK(other_checkpoint.code == 2);
  CHECK_THAT(other_checkpoint.err, ContainsSubstring("step-4"));
}

TEST_CASE("overfit-batch and profile do what they say, and survive a resume", "[cli]") {
  const Program program;
  const auto with = [](Arguments more) {
    const Arguments common = {"train", "--config", "small.yaml", "--out", "run", "--overfit-batch", "--json"};
    more.insert(more.begin(), common.begin(), common.end());
    return more;
  };
  const auto first = program.run(with({"--set", "train.steps=20", "--profile"}));
  REQUIRE(first.code == 0);
  CHECK_THAT(first.err, ContainsSubstring("aten::mm") && ContainsSubstring("over 10 steps"));
  CHECK(nlohmann::json::parse(read_text(program.folder() / "run/profile.json")).contains("traceEvents"));
  const auto early = nlohmann::json::parse(first.last_line());
  const auto late = nlohmann::json::parse(
      program.succeed(with({"--resume", "--set", "train.steps=300", "--set", "train.diagnostics_interval=100"})));
  CHECK(late["val_loss"].get<double>() < 0.8 * early["val_loss"].get<double>());
  CHECK_THAT(read_text(program.folder() / "run/metrics.jsonl"), ContainsSubstring("score_effective_rank"));
  CHECK_THAT(program.run({"evaluate", "--run", "run"}).err, ContainsSubstring("trained only on its first batch"));
}

TEST_CASE("a run can be resumed and continues to more steps", "[cli]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  const auto more = nlohmann::json::parse(program.succeed(
      {"train", "--config", "small.yaml", "--out", "run", "--resume", "--set", "train.steps=6", "--json"}));
  CHECK(more.at("steps") == 6);
  const auto other =
      program.run({"train", "--config", "small.yaml", "--out", "run", "--resume", "--set", "model.layers=2"});
  CHECK(other.code == 2);
  CHECK_THAT(other.err, ContainsSubstring("model.layers is 2 now and was 1"));
}

TEST_CASE("a signal saves the state and sets the exit code", "[cli]") {
  const auto [signal, code] = GENERATE(table<int, int>({{SIGINT, 130}, {SIGTERM, 143}}));
  const Program program;
  const auto pid = program.start({"train", "--config", "small.yaml", "--out", "run", "--set", "train.steps=100000000",
                                  "--set", "train.eval_interval=50", "--set", "train.checkpoint_interval=50"});
  const auto last = program.folder() / "run/checkpoints/last";
  for (int i = 0; i < 600 && !std::filesystem::exists(last); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  REQUIRE(std::filesystem::exists(last));
  kill(pid, signal);
  const auto result = program.wait(pid);
  CHECK(result.code == code);
  CHECK_THAT(result.err, ContainsSubstring("go on with --resume"));
  const auto meta = nlohmann::json::parse(read_text(last / "meta.json"));
  const auto steps = std::to_string(meta.at("step").get<std::int64_t>() + 2);
  program.succeed({"train", "--config", "small.yaml", "--out", "run", "--resume", "--set", "train.steps=" + steps,
                   "--set", "train.eval_interval=50", "--set", "train.checkpoint_interval=50"});
}

TEST_CASE("SIGUSR1 saves and training goes on; a second process is refused meanwhile", "[cli]") {
  const Program program;
  const Arguments endless = {"train",
                             "--config",
                             "small.yaml",
                             "--out",
                             "run",
                             "--set",
                             "train.steps=100000000",
                             "--set",
                             "train.eval_interval=100000000",
                             "--set",
                             "train.checkpoint_interval=100000000"};
  const auto pid = program.start(endless);
  const auto wait_for = [](const auto& condition) {
    for (int i = 0; i < 600 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return condition();
  };
  const auto log = [&] { return read_text(program.folder() / "run/train.log"); };
  REQUIRE(wait_for([&] { return log().find("device:") != std::string::npos; }));
  kill(pid, SIGUSR1);
  CHECK(wait_for([&] { return log().find("as SIGUSR1 asked") != std::string::npos; }));
  CHECK(std::filesystem::exists(program.folder() / "run/checkpoints/last/meta.json"));

  auto again = endless;
  again.push_back("--resume");
  const auto second = program.run(again);
  CHECK(second.code == 2);
  CHECK_THAT(second.err, ContainsSubstring("run is in use by process " + std::to_string(pid)));
  kill(pid, SIGTERM);
  CHECK(program.wait(pid).code == 143);
  CHECK_FALSE(std::filesystem::exists(program.folder() / "run/lock"));
}

TEST_CASE("a checkpoint that may not be written ends the run and harms no earlier one", "[cli]") {
  const Program program;
  const Arguments more = {"train", "--config", "small.yaml", "--out", "run", "--resume", "--set", "train.steps=8"};
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  rlimit usual{}, small{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &usual) == 0);
  small = {.rlim_cur = 8192, .rlim_max = usual.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const auto limited = program.run(more);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &usual) == 0);
  CHECK(limited.code == 1);
  CHECK_THAT(limited.err, ContainsSubstring("File too large") && ContainsSubstring("earlier checkpoints are intact"));
  program.succeed({"evaluate", "--run", "run", "--checkpoint", "last"});
  program.succeed(more);
}

TEST_CASE("an injected NaN or overflow ends with code 4, or is rolled back from", "[cli]") {
  const Program program;
  setenv("METAFORMER_FAULT", GENERATE("nan:3", "overflow:3"), 1);
  const auto stopped = program.run({"train", "--config", "small.yaml", "--out", "stopped"});
  const auto mended = program.run(
      {"train", "--config", "small.yaml", "--out", "mended", "--json", "--set", "train.divergence.action=rollback"});
  unsetenv("METAFORMER_FAULT");
  CHECK(stopped.code == 4);
  CHECK_THAT(stopped.err, ContainsSubstring("step 3: the training loss is not finite, first in the gradient of "));
  CHECK(mended.code == 0);
  CHECK_THAT(mended.err, ContainsSubstring("rollback 1 of 3: back to step 2"));
  CHECK(nlohmann::json::parse(mended.last_line()).at("rollbacks") == 1);
}

TEST_CASE("in fp16 an injected NaN or overflow is a step that is skipped and counted", "[cli][fp16]") {
  const Program program;
  setenv("METAFORMER_FAULT", GENERATE("nan:3", "overflow:3"), 1);
  const auto result = program.run({"train", "--config", "small.yaml", "--out", "run", "--json", "--set",
                                   "train.precision=fp16", "--set", "train.log_interval=1"});
  unsetenv("METAFORMER_FAULT");
  CHECK(result.code == 0);
  const auto summary = nlohmann::json::parse(result.last_line());
  CHECK(summary.at("skipped_steps") == 1);
  CHECK(summary.at("steps") == 4);
  CHECK(summary.at("rollbacks") == 0);
  std::istringstream lines(read_text(program.folder() / "run/metrics.jsonl"));
  std::vector<std::pair<int, int>> skipped;
  for (std::string line; std::getline(lines, line);)
    if (const auto json = nlohmann::json::parse(line); json["split"] == "train")
      skipped.emplace_back(json["step"], json["skipped_steps"]);
  CHECK(skipped == std::vector<std::pair<int, int>>{{1, 0}, {2, 0}, {4, 1}});  // step 3 has no loss to report
}

TEST_CASE("help goes to stdout and shows examples", "[cli]") {
  const Program program;
  for (const Arguments& arguments : {Arguments{"--help"},
                                     {"train", "--help"},
                                     {"sample", "--help"},
                                     {"predict", "--help"},
                                     {"export", "--help"},
                                     {"config", "--help"},
                                     {"evaluate", "--help"},
                                     {"data", "--help"}})
    CHECK_THAT(program.succeed(arguments), ContainsSubstring("Examples:"));
  CHECK_THAT(program.succeed({"--help-all"}), ContainsSubstring("--temperature"));
  CHECK_THAT(program.succeed({"--version"}), ContainsSubstring("metaformer "));
}

TEST_CASE("a dumped config is a config", "[cli]") {
  const Program program;
  program.folder().write("dumped.yaml", program.succeed({"config", "dump", "--config", "shakespeare_metric.yaml",
                                                         "--set", "train.steps=7"}));
  CHECK(program.succeed({"config", "dump", "dumped.yaml"}) == read_text(program.folder() / "dumped.yaml"));
  CHECK_THAT(program.succeed({"config", "check", "dumped.yaml"}), ContainsSubstring("valid"));
  CHECK(nlohmann::json::parse(program.succeed({"config", "dump", "dumped.yaml", "--json"}))["train"]["steps"] == 7);
  CHECK_THAT(program.succeed({"config", "explain", "model.mixer"}), ContainsSubstring("model.mixer.constraint"));
}

TEST_CASE("info finds the linked libraries working", "[cli]") {
  const Program program;
  const auto info = nlohmann::json::parse(program.succeed({"info", "--json"}));
  for (const auto& [name, works] : info.at("checks").items()) CHECK(works == true);
  CHECK(info.at("torch").get<std::string>().starts_with("2."));
}

TEST_CASE("bench step tells a step's time by phase, and saves nothing", "[cli]") {
  const Program program;
  const auto json =
      nlohmann::json::parse(program.succeed({"bench", "step", "--config", "small.yaml", "--steps", "2", "--rounds", "2",
                                             "--warmup", "0", "--device", "cpu", "--json"}));
  const double ms = json.at("ms_per_step").get<double>();
  CHECK(ms > 0);
  for (const auto* phase : {"batch", "forward", "backward", "reduce", "clip", "update"})
    CHECK(json.at("phases").at(phase) >= 0);
  CHECK(json.at("tokens_per_second").get<double>() > 0);
  CHECK(json.at("share_of_peak").get<double>() == Approx(json.at("operations_per_step").get<double>() / ms * 1e-6 /
                                                         json.at("product_peak_gflops").get<double>()));
  CHECK(json.at("peak_memory_bytes").get<double>() > 1e6);
  CHECK(json.at("fast_paths").at("attention").at("taken") == true);
  CHECK_FALSE(std::filesystem::exists(program.folder() / "runs"));
  CHECK_THAT(
      program.succeed({"bench", "step", "--config", "small.yaml", "--steps", "1", "--rounds", "1", "--device", "cpu"}),
      ContainsSubstring("backward"));
  CHECK(program.run({"bench", "step", "--config", "small.yaml", "--steps", "0"}).code == 2);
}

TEST_CASE("bench kernels compares with the library", "[cli]") {
  const Program program;
  const std::vector<std::string> small = {"bench", "kernels", "--batch", "1", "--context", "8", "--rounds", "1"};
  CHECK_THAT(program.succeed(small), ContainsSubstring("feed-forward branch"));
  auto as_json = small;
  as_json.insert(as_json.end(), {"--precision", "bf16", "--json"});
  CHECK(nlohmann::json::parse(program.succeed(as_json)).at("results").at(0).at("kernel") == "attention");
  auto wrong = small;
  wrong.insert(wrong.end(), {"--precision", "fp16"});
  const auto refused = program.run(wrong);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("expected fp32 or bf16"));
}

TEST_CASE("MKL may be left to decide for itself", "[cli]") {
  const Program program;
  const auto choice = [&](const std::string& wish) {
    setenv("METAFORMER_MKL", wish.c_str(), 1);
    const auto info = nlohmann::json::parse(program.succeed({"info", "--json"}));
    unsetenv("METAFORMER_MKL");
    return info.at("matrix_products").get<std::string>();
  };
  setenv("METAFORMER_MKL", "fast", 1);
  const auto refused = program.run({"train", "--config", "small.yaml", "--out", "run"});
  unsetenv("METAFORMER_MKL");
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("METAFORMER_MKL=fast: expected own"));
  CHECK_FALSE(std::filesystem::exists(program.folder() / "run"));
  const auto usual = choice("");
  if (usual.find("widest") != std::string::npos) CHECK_THAT(choice("own"), ContainsSubstring("decides for itself"));
}

TEST_CASE("the vocabulary is counted where the data are at hand, and one layer is one layer", "[cli]") {
  const Program program;
  const auto text = small_text();
  const auto characters = std::to_string(std::set<char>(text.begin(), text.end()).size());
  const auto result = program.run({"train", "--config", "small.yaml", "--set", "train.steps=1", "--out", "run"});
  CHECK(result.code == 0);
  CHECK_THAT(result.err,
             ContainsSubstring("1 layer, 2 heads") && ContainsSubstring("vocabulary of " + characters + " tokens"));
  const auto counted = program.succeed({"config", "check", "small.yaml"});
  CHECK_THAT(counted, ContainsSubstring("with the data's vocabulary of " + characters + " tokens"));
  const auto json = nlohmann::json::parse(program.succeed({"config", "check", "small.yaml", "--json"}));
  CHECK(json.at("vocabulary") == std::stoi(characters));
  const auto assumed = program.succeed({"config", "check", "small.yaml", "--set", "data.path=nowhere.txt"});
  CHECK_THAT(assumed, ContainsSubstring("with an assumed vocabulary of 128 tokens"));
}

TEST_CASE("training with the fused backend on the CPU is refused before a run is made", "[cli]") {
  const Program program;
  const auto refused = program.run({"train", "--config", "small.yaml", "--out", "run", "--device", "cpu", "--set",
                                    "model.mixer={kind: metric, backend: fused}"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("'fused' needs a CUDA device"));
  CHECK_FALSE(std::filesystem::exists(program.folder() / "run"));
}

TEST_CASE("an empty value is an error that names the option or the key", "[cli]") {
  const Program program;
  const auto [arguments, text] = GENERATE(table<Arguments, std::string>({
      {{"train", "--config", "small.yaml", "--out", ""}, "--out: is empty"},
      {{"train", "--config", "small.yaml", "--out="}, "--out: is empty"},
      {{"train", "--out=", "--config", "small.yaml"}, "--out: is empty"},
      {{"train", "--config", ""}, "--config: is empty"},
      {{"train", ""}, "--config: is empty"},
      {{"train", "--config", "small.yaml", "--device", ""}, "--device: is empty"},
      {{"train", "--config", "small.yaml", "--set", ""}, "--set: is empty"},
      {{"evaluate", "--run", ""}, "--run: is empty"},
      {{"evaluate", "--checkpoint="}, "--checkpoint: is empty"},
      {{"evaluate", "--with", ""}, "--with: is empty"},
      {{"sample", "--prompt-file", ""}, "--prompt-file: is empty"},
      {{"predict", ""}, "file: is empty"},
      {{"inspect", "--beside", ""}, "--beside: is empty"},
      {{"inspect", "--file", ""}, "--file: is empty"},
      {{"export", "--out", ""}, "--out: is empty"},
      {{"compare", ""}, "runs: is empty"},
      {{"compare", "run", "--export", ""}, "--export: is empty"},
      {{"report", "run", "-o", ""}, "--out: is empty"},
      {{"report", "run", "--figures", ""}, "--figures: is empty"},
      {{"config", "import", ""}, "folder: is empty"},
      {{"config", "draw", "--space", "", "--index", "0"}, "--space: is empty"},
      {{"data", "fetch", "imdb", "--to", ""}, "--to: is empty"},
      {{"train", "--config", "small.yaml", "--set", "data.path="},
       "--set data.path=: data.path: is empty; expected a path, or null for none"},
      {{"train", "--config", "small.yaml", "--set", "data.path=\"\""}, "data.path: is empty; expected a path, or null"},
      {{"train", "--config", "small.yaml", "--set", "data.validation_path="}, "data.validation_path: is empty"},
      {{"train", "--config", "small.yaml", "--set", "train.init_from="}, "train.init_from: is empty"},
      {{"train", "--config", "small.yaml", "--set", "data.corpus="}, "data.corpus: is empty; expected a text"},
      {{"train", "--config", "small.yaml", "--set", "data={path: , cache: true}"}, "data.path: is empty"},
      {{"train", "--config", "small.yaml", "--set", "train.freeze=['']"}, "train.freeze: is empty"},
      {{"train", "--config", "small.yaml", "--set", "data.tokenizer={kind: pretrained, path: ''}"},
       "data.tokenizer.path: is empty; expected a path"},
      {{"train", "--config", "small.yaml", "--set", "model.kind="}, "model"},
  }));
  const auto result = program.run(arguments);
  INFO("stderr: " << result.err);
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring(text));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK_FALSE(std::filesystem::exists(program.folder() / "runs"));
}

TEST_CASE("an empty value in a file has its place; null and texts that may be empty keep their meaning", "[cli]") {
  const Program program;
  const auto check = [&](const std::string& yaml) {
    program.folder().write("a.yaml", yaml);
    return program.run({"config", "dump", "a.yaml"});
  };
  for (const auto* empty : {"data:\n  path:\n", "data:\n  path: ''\n", "data:\n  path:\n  cache: true\n"}) {
    const auto refused = check(empty);
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err,
               ContainsSubstring("a.yaml:2:") && ContainsSubstring("data.path: is empty; expected a path"));
  }
  CHECK_THAT(check("base:\n").err, ContainsSubstring("base: expected the name of a config"));
  CHECK_THAT(check("base: ''\n").err, ContainsSubstring("base: is empty; expected the name of a config"));
  for (const auto* null : {"null", "~", "Null", "NULL  # none", "null\n  cache: true"})
    CHECK_THAT(check("data:\n  path: " + std::string(null) + "\n").out, ContainsSubstring("path: null\n"));
  CHECK_THAT(check("data: {path: null, cache: false}\n").out, ContainsSubstring("path: null\n"));
  CHECK_THAT(check("data: {tokenizer: {kind: word, joiners: ''}}\n").out, ContainsSubstring("joiners: \"\"\n"));
  CHECK(check("data:\n  tokenizer:\n    kind: word\n    joiners:\n").code == 2);
  CHECK(program.run({"config", "dump", "--set", "data.path=null"}).code == 0);
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  CHECK_THAT(program.run({"sample", "--run", "run", "--prompt", ""}).err, !ContainsSubstring("is empty"));
  CHECK_THAT(program.run({"sample", "--run", "run", "--prompt="}).err, !ContainsSubstring("is empty"));
}
