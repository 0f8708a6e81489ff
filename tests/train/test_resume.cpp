// What a run goes on with.

#include "tasks/task_examples.h"

namespace metaformer {

TEST_CASE("classifiers and sorters resume to the byte", "[classification][sort]") {
  const Workplace place;
  const bool sorts = GENERATE(true, false);
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"train.schedule={kind: constant, warmup_steps: 2}", "model.dropout=0.1",
                             "train.accumulate=4", "train.batch_size=32"});
    if (sorts) return sorter(more);
    more.insert(more.end(), {"model.embedding.scale=log_count_ratio", "model.embedding.ngrams={order: 2, buckets: 64}",
                             "task.head.recalibrate=true", "train.eval_interval=2"});
    return classifier(place, more);
  };
  // Of about 1,050 texts: the epoch ends in step 9, after the cut.
  place.train("whole", with({"train.steps=12"}));
  place.train("cut", with({"train.steps=5"}));
  place.train("cut", with({"train.steps=12"}), true);
  CHECK(model_bytes(place / "whole") == model_bytes(place / "cut"));
}

TEST_CASE("classifiers of regions resume to the byte, with tables that are updated row by row", "[classification]") {
  const Workplace place;
  const std::string layers = GENERATE("0", "1"), optimizer = GENERATE("adagrad", "{kind: sgd, momentum: 0.9}");
  const auto with = [&](const std::string& steps) {
    return classifier(
        place, {"model.layers=" + layers, layers == "0" ? "model.heads=4" : "model.heads=2", "model.positions=none",
                "train.optimizer=" + optimizer, "model.embedding.region={kind: sequence, shortest: 1, longest: 2}",
                "task.head={kind: max_pooled, dropout: 0.5, response_norm: true, bag: {kind: naive_bayes, "
                "buckets: 500, units: 3}}",
                "train.schedule={kind: constant, warmup_steps: 2}", "train.accumulate=2", "train.steps=" + steps});
  };
  place.train("whole", with("12"));
  place.train("cut", with("5"));
  place.train("cut", with("12"), true);
  CHECK(model_bytes(place / "whole") == model_bytes(place / "cut"));
  CHECK(read_text(place / "whole/checkpoints/last/state.safetensors") ==
        read_text(place / "cut/checkpoints/last/state.safetensors"));
}

TEST_CASE("every optimiser, an average and a loss scale resume to the byte", "[optimizer][average][fp16]") {
  const Workplace place;
  const std::string optimizer = GENERATE("{kind: adamw, embedding_weight_decay: 0}", "{kind: adam, weight_decay: 0.01}",
                                         "sgd", "{kind: sgd, momentum: 0.9}", "muon", "adagrad");
  const std::string precision = GENERATE("fp32", "fp16"), decay = GENERATE("0", "0.9");
  INFO(optimizer << ", " << precision << ", decay " << decay);
  const auto with = [&](const std::string& steps) {
    return std::vector<std::string>{"train.optimizer=" + optimizer, "train.precision=" + precision,
                                    "train.weight_average.decay=" + decay, "train.steps=" + steps,
                                    "train.schedule={kind: inverse_sqrt, warmup_steps: 2}"};
  };
  place.train("whole", with("12"));
  place.train("cut", with("5"));
  place.train("cut", with("12"), true);
  CHECK(model_bytes(place / "whole") == model_bytes(place / "cut"));
  CHECK(read_text(place / "whole/checkpoints/last/state.safetensors") ==
        read_text(place / "cut/checkpoints/last/state.safetensors"));
}

TEST_CASE("what a model remembers is resumed to the byte, wherever the run stopped", "[memory]") {
  const Workplace place;
  const int steps = GENERATE(3, 5, 11);
  const std::string more =
      GENERATE("train.cpu_slices=1", "train.cpu_slices=2", "model.blocks=reversible", "train.loss_chunks=3",
               "model.feed_forward.chunks=3", "model.mixer=average_pooling");
  INFO(more << " after " << steps);
  const auto with = [&](int last) {
    std::vector<std::string> all = {"model.memory=10",
                                    "model.dropout=0.1",
                                    "train.batch_size=4",
                                    "train.accumulate=2",
                                    "train.schedule={kind: constant, warmup_steps: 2}",
                                    "train.steps=" + std::to_string(last),
                                    more};
    if (more != "model.mixer=average_pooling") all.emplace_back("model.positions=transformer_xl");
    return all;
  };
  place.train("whole", with(14));
  place.train("cut", with(steps));
  place.train("cut", with(14), true);
  CHECK(model_bytes(place / "whole") == model_bytes(place / "cut"));
  CHECK(read_text(place / "whole/checkpoints/last/state.safetensors") ==
        read_text(place / "cut/checkpoints/last/state.safetensors"));
  CHECK_THAT(read_text(place / "cut/checkpoints/last/state.safetensors"), ContainsSubstring("memory.blocks.0"));
}

TEST_CASE("a run goes on with its own numbering or not at all", "[classification]") {
  const Workplace place;
  place.train("run", classifier(place, {"train.steps=5"}));
  const auto overrides = classifier(place, {"train.steps=9"});
  auto table = read_text(place / "table.tsv");
  for (auto at = table.find("\tgood\n"); at != std::string::npos; at = table.find("\tgood\n", at + 1))
    table.replace(at, 6, "\tevil\n");
  place.folder().write("table.tsv", table);
  CHECK_THROWS_WITH(place.train("run", overrides, true), ContainsSubstring("the label 'evil' is not among"));
  place.folder().write("table.tsv", marked_table(1400));
  CHECK_THROWS_WITH(place.train("run", overrides, true), ContainsSubstring("the data are not those it was trained on"));
  place.folder().write("table.tsv", marked_table(1500));
  CHECK(place.train("run", overrides, true)["steps"] == 9);
}

}  // namespace metaformer
