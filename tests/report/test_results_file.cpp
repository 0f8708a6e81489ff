// CSV files of results, and finding runs on the disk.

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rows.h"
#include "report/run_records.h"
#include "support/failure.h"
#include "support/temporary_folder.h"
#include "support/torch_catch.h"
#include "tasks/measures.h"

namespace metaformer::test_results_file {

namespace {

RunRecord run_of(const std::string& key, std::int64_t seed, double loss) {
  RunRecord run{.key = key, .config = "a, \"quoted\".yaml", .overrides = "x=1", .seed = seed};
  run.settings = {{"model.mixer.kind", "quadratic"}, {"train.optimizer.betas", "[0.9, 0.95]"}};
  run.measures = {{"val_loss", loss}, {"my_own", 3}};
  run.commit = "c";
  return run;
}

std::vector<std::string> keys_of(const std::filesystem::path& file) {
  std::vector<std::string> keys;
  for (const auto& row : read_results(file).rows) keys.push_back(row.at("key"));
  return keys;
}

// Names, overrides and cells that a CSV file must quote, and some that only seem so.
const std::vector<std::string> nasty = {
    "a,b",      "say \"no\"", "\"",   ",",        "two\nlines", "cr\rlf\r\n", " x ", "\ttab", "ü \xE2\x82\xAC",
    "'quoted'", "=1+1",       "\"\"", "a\"b,c\n", "#",          "NaN text",   "1e5", "007",   ";"};

std::map<std::string, std::string> cells_of(const std::filesystem::path& file, const std::string& key) {
  for (const auto& row : read_results(file).rows)
    if (row.contains("key") && row.at("key") == key) return row;
  return {};
}

}  // namespace

TEST_CASE("runs are read from a results file as they were written", "[results_file]") {
  const TemporaryFolder folder;
  const auto file = folder / "results/a.csv";
  export_results(file, {run_of("k1", 1, 0.1 + 0.2)}, {});
  const auto runs = records_of(read_results(file), file).runs;
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].name() == "a, \"quoted\".yaml x=1");
  CHECK(runs[0].settings == run_of("", 0, 0).settings);
  CHECK(runs[0].measures == std::map<std::string, double>{{"val_loss", 0.1 + 0.2}, {"my_own", 3}});
  CHECK(runs[0].source == file.string() + ":2");
  CHECK(runs[0].commit == "c");
  const auto marked = folder.write("marked.csv", "\xEF\xBB\xBF" + read_text(file));  // spreadsheets write this mark
  CHECK(keys_of(marked) == std::vector<std::string>{"k1"});
}

TEST_CASE("the columns of a results file have a fixed order", "[results_file]") {
  const TemporaryFolder folder;
  auto run = run_of("k1", 1, 1);
  run.cpu = run.threads = run.data = "x";
  for (const auto& measure : all_measures()) run.measures[measure.id] = 0.5;
  export_results(folder / "a.csv", {run}, {});
  const auto header = read_results(folder / "a.csv").columns;
  CHECK_THAT(
      fmt::format("{}", fmt::join(header, ",")),
      Catch::StartsWith("key,config,overrides,seed,steps,train_loss,val_loss,best_val_loss,best_step,parameters,"
                        "mixer_parameters,operations_per_token,state_bytes,ms_per_step,tokens_per_second,"
                        "peak_memory_bytes,accuracy,exact_match,best_exact_match,perfect_since,collapse_step,"
                        "commit,cpu,threads,best_val_error,"
                        "test_accuracy,test_f1,test_auc,test_calibration_error,train_seconds,wall_seconds,"
                        "bits_per_character,bits_per_byte,lossless_bits_per_byte,bytes_per_token,data,settings,"));
  for (const char* derived : {"loss_gap", "validation_score"})
    CHECK(std::find(header.begin(), header.end(), derived) == header.end());
}

TEST_CASE("an export replaces rows with the same key, keeps other rows and sorts by the given order",
          "[results_file]") {
  const TemporaryFolder folder;
  const auto file =
      folder.write("a.csv", "key,config,overrides,seed,val_loss,extra,settings\nold,o.yaml,,7,1.50,text,{}\n");
  export_results(file, {run_of("k2", 2, 2), run_of("k1", 1, 1)}, {});
  CHECK(keys_of(file) == std::vector<std::string>{"old", "k2", "k1"});
  export_results(file, {run_of("k2", 2, 5)}, {"k1", "missing", "k2"});
  CHECK(keys_of(file) == std::vector<std::string>{"k1", "k2", "old"});
  const auto rows = read_results(file).rows;
  CHECK(rows[1].at("val_loss") == "5");
  CHECK(rows[2] == ResultsRow{{"key", "old"},
                              {"config", "o.yaml"},
                              {"seed", "7"},
                              {"val_loss", "1.50"},
                              {"extra", "text"},
                              {"settings", "{}"}});
}

TEST_CASE("no row is lost if several processes export at once", "[results_file]") {
  const TemporaryFolder folder;
  const auto file = folder / "a.csv";
  constexpr int writers = 4, rows = 10;
  for (int writer = 0; writer < writers; ++writer)
    if (::fork() == 0) {
      for (int row = 0; row < rows; ++row)
        export_results(file, {run_of(std::to_string(writer) + "-" + std::to_string(row), row, 1)}, {});
      ::_exit(0);
    }
  for (int writer = 0; writer < writers; ++writer) ::wait(nullptr);
  CHECK(keys_of(file).size() == writers * rows);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a malformed results file is an error with its place, and an export does not change it", "[results_file]") {
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"key,val_loss\nk,1\n", "a.csv:1:|results|'config'"},
      {"config,seed\na,1\n", "a.csv:1:|results|'settings'"},
      {"config,seed,settings,val_loss\na,1,{},abc\n", "a.csv:2: val_loss:|number|'abc'"},
      {"config,seed,settings\na,1.5,{}\n", "a.csv:2: seed:|number|'1.5'"},
      {"config,seed,settings\na,1,{}\nb,one,{}\n", "a.csv:3: seed:|number|'one'"},
      {"config,seed,settings\na,1,\n", "a.csv:2: settings:|object"},
      {"config,seed,settings\na,1,[]\n", "a.csv:2: settings:|object"},
      {"a: \"b\" c\n", "a.csv:1:|file|results: "},
      {"config,seed\na\n", "a.csv:2: 1|2 columns"},
      {"config,seed\n\"a,1\n", "a.csv:2: "},
      {"config,seed,val_loss,val_loss\na,1,2,3\n", "a.csv:1:|columns 3|4|'val_loss'"},
      {"config,seed,note,x,note\na,1,2,3,4\n", "a.csv:1:|columns 3|5|'note'"},
      {"config,seed,,\na,1,,\n", "a.csv:1:|columns 3|4|''"}};
  for (const auto& [text, expected] : cases) {
    INFO(text);
    const auto file = folder.write("a.csv", text);
    for (const auto& [code, what] : {failure([&] { records_of(read_results(file), file); }),
                                     failure([&] { export_results(file, {run_of("k", 1, 1)}, {}); })}) {
      CHECK(code == ExitCode::data);
      CHECK_THAT(what, Mentions(expected));
    }
    CHECK(read_text(file) == text);
  }
  CHECK(failure([&] { export_results(folder / "new.csv", {}, {}); }).first == ExitCode::usage);
  CHECK_FALSE(std::filesystem::exists(folder / "new.csv"));
}

TEST_CASE("an export keeps any names and cells of a results file", "[results_file]") {
  const TemporaryFolder folder;
  const auto file = folder / "a.csv";
  std::string header = "key,config,seed,overrides,settings", row = "old,o.yaml,7,,{}";
  for (const auto& name : nasty) {
    header += "," + csv_field("column " + name) + "," + csv_field(name);
    row += "," + csv_field(name) + "," + csv_field("cell " + name);
  }
  folder.write("a.csv", "\xEF\xBB\xBF" + header + ",never used\n" + row +
                            ",\n");  // spreadsheets write this mark and empty columns
  const auto before = read_results(file);
  std::vector<RunRecord> runs;
  for (std::size_t i = 0; i < nasty.size(); ++i) {
    runs.push_back(run_of("key " + nasty[i], static_cast<std::int64_t>(i), 0.5));
    runs.back().config = nasty[i] + ".yaml";
    runs.back().overrides = "x=" + nasty[i];
    runs.back().measures["measure " + nasty[i]] = 0.1 * static_cast<double>(i);
  }
  export_results(file, runs, {});
  export_results(file, runs, {});
  CHECK(cells_of(file, "old") == before.rows[0]);
  const auto after = read_results(file);
  CHECK(after.rows.size() == runs.size() + 1);
  for (const auto& column : before.columns) CHECK(std::count(after.columns.begin(), after.columns.end(), column) == 1);
  const auto read = records_of(after, file).runs;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    CHECK(read[i + 1].name() == runs[i].name());
    CHECK(read[i + 1].measures == runs[i].measures);
    CHECK(read[i + 1].settings == runs[i].settings);
  }
  // Rows are exported into another file unchanged.
  export_results(folder / "b.csv", read, {});
  for (const auto& record : read) CHECK(cells_of(folder / "b.csv", record.key) == cells_of(file, record.key));
}

TEST_CASE("rows without a key replace only themselves, and a replaced row keeps the user's columns", "[results_file]") {
  const TemporaryFolder folder;
  const auto file =
      folder.write("a.csv", "config,seed,settings,val_loss\na.yaml,1,{},1\na.yaml,2,{},2\nb.yaml,1,{},3\n");
  const auto runs = records_of(read_results(file), file).runs;
  export_results(folder / "b.csv", runs, {});
  export_results(folder / "b.csv", runs, {});
  CHECK(read_results(folder / "b.csv").rows == read_results(file).rows);
  const auto noted = folder.write("c.csv", "key,config,seed,settings,val_loss,note,test_f1\nk,a,1,{},9,mine,0.5\n");
  export_results(noted, {run_of("k", 1, 2), run_of("k", 1, 7)}, {});
  REQUIRE(read_results(noted).rows.size() == 1);
  const auto row = cells_of(noted, "k");
  CHECK((row.at("note") == "mine" && row.at("val_loss") == "2"));
  CHECK_FALSE(row.contains("test_f1"));  // it belonged to the earlier training
}

TEST_CASE("a row with an infinite or NaN number is named and left out", "[results_file]") {
  const TemporaryFolder folder;
  const auto file = folder.write("a.csv", "config,seed,settings,val_loss\na,1,{},nan\na,2,{},1.5\na,3,{},inf\n");
  const auto records = records_of(read_results(file), file);
  REQUIRE(records.runs.size() == 1);
  CHECK(records.runs[0].seed == 2);
  REQUIRE(records.problems.size() == 2);
  CHECK_THAT(records.problems[0], Mentions(file.string() + ":2: left out|val_loss"));
}

TEST_CASE("an export follows a link, and refuses to replace anything but a file", "[results_file]") {
  const TemporaryFolder folder;
  const auto file = folder.write("real.csv", "config,seed,settings\no.yaml,7,{}\n");
  std::filesystem::create_symlink("real.csv", folder / "link.csv");
  export_results(folder / "link.csv", {run_of("k1", 1, 1)}, {});
  CHECK(std::filesystem::is_symlink(folder / "link.csv"));
  CHECK(read_results(file).rows.size() == 2);
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0666) == 0);
  CHECK(failure([&] { export_results(folder / "pipe", {run_of("k1", 1, 1)}, {}); }).first == ExitCode::usage);
  CHECK(std::filesystem::is_fifo(folder / "pipe"));
}

TEST_CASE("a pattern skips folders that are no runs", "[find_runs]") {
  const TemporaryFolder folder;
  folder.write("runs/a/config.yaml", "");
  folder.write("runs/a/summary.json", "{\"steps\": 3,");
  folder.write("runs/empty/note.txt", "");
  const auto found = find_runs({(folder / "runs/*").string()});
  CHECK(found.folders.size() == 1);
  REQUIRE(found.problems.size() == 1);
  CHECK_THAT(found.problems[0], Mentions("a: left out|summary.json"));
  for (const auto& [pattern, text] : {std::pair("runs/em*", "matches no run"), {"runs/empty", "not a run"}})
    CHECK_THAT(failure([&, given = pattern] { find_runs({(folder / given).string()}); }).second,
               ContainsSubstring(text));
}

TEST_CASE("unfinished, diverged and damaged runs are named", "[find_runs]") {
  const TemporaryFolder folder;
  for (const char* name : {"unfinished", "diverged", "not_finite", "damaged"})
    folder.write(std::string("runs/") + name + "/config.yaml", std::string(name) == "damaged" ? "train: 3\n" : "");
  folder.write("runs/unfinished/train.log", "info: a\ninfo: step 5\n");
  folder.write("runs/diverged/train.log", "error: step 3: the training loss is not finite; try a lower rate\n");
  folder.write("runs/not_finite/summary.json", R"({"steps": 3, "val_loss": null})");
  folder.write("runs/damaged/summary.json", R"({"steps": 3, "val_loss": 1.5})");
  const auto found = find_runs({(folder / "runs").string()});
  CHECK(found.runs.empty());
  REQUIRE(found.problems.size() == 4);
  CHECK_THAT(found.problems[0], ContainsSubstring("damaged: left out: ") && ContainsSubstring("config.yaml:1"));
  CHECK_THAT(found.problems[1], Mentions("diverged: left out:|step 3"));
  CHECK_THAT(found.problems[2], ContainsSubstring("not_finite: left out: diverged"));
  CHECK_THAT(found.problems[3], Mentions("unfinished:|summary.json|last|\"info:|5\""));
  CHECK(find_runs({(folder / "runs/*d").string()}).folders.size() == 3);
  CHECK(failure([&] { find_runs({(folder / "no*").string()}); }).first == ExitCode::usage);
}

}  // namespace metaformer::test_results_file
