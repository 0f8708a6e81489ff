#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "data/list_dataset.h"
#include "support/catch.h"

namespace metaformer::test_list_dataset {

namespace {

using List = std::vector<std::int32_t>;

// The list at the start of a row. Checks that the rest of the row is its sorted copy.
List checked_list(const TokenRows& batch, std::int64_t row, const ListTask& config) {
  const auto length = config.length, width = 2 * length - 1;
  REQUIRE(batch.length == width);
  const auto row_of = [&](const std::vector<std::int64_t>& all) {
    return List(all.begin() + row * width, all.begin() + (row + 1) * width);
  };
  const List ids = row_of(batch.ids), targets = row_of(batch.targets);
  List list(ids.begin(), ids.begin() + length), sorted = list;
  std::sort(sorted.begin(), sorted.end());
  for (std::int64_t i = 0; i < width; ++i) {
    const auto at = static_cast<std::size_t>(i);
    CHECK(targets[at] == (i < length - 1 ? -1 : sorted[at - static_cast<std::size_t>(length) + 1]));
    if (i >= length) CHECK(ids[at] == targets[at - 1]);
    CHECK((ids[at] >= 0 && ids[at] < config.digits));
  }
  return list;
}

std::set<List> all_lists(const ListDataset& dataset, Split split, const ListTask& config) {
  std::set<List> lists;
  const auto count = dataset.list_count(split);
  for (std::int64_t first = 0; first < count; first += 7) {
    const auto batch = dataset.rows(split, first, 7);
    CHECK(batch.rows == std::min<std::int64_t>(7, count - first));
    CHECK(batch.target_count == batch.rows * config.length);
    for (std::int64_t row = 0; row < batch.rows; ++row) lists.insert(checked_list(batch, row, config));
  }
  CHECK(static_cast<std::int64_t>(lists.size()) == count);
  return lists;
}

}  // namespace

TEST_CASE("few lists are all enumerated, and about a quarter is held out from training", "[sort]") {
  const ListTask config{.length = 6, .digits = 3};
  const ListDataset dataset(config);
  CHECK(dataset.is_exhaustive());
  const auto train = all_lists(dataset, Split::train, config), test = all_lists(dataset, Split::test, config);
  CHECK(train.size() + test.size() == 729);
  CHECK(test.size() > 729 * 0.18);
  CHECK(test.size() < 729 * 0.32);
  CHECK(test == all_lists(dataset, Split::validation, config));
  for (const auto& list : test) CHECK_FALSE(train.contains(list));
  std::map<List, int> drawn;
  for (std::int64_t step = 0; step < 200; ++step) {
    const auto batch = dataset.random_rows(5, step, 0, 32);
    for (std::int64_t row = 0; row < batch.rows; ++row) ++drawn[checked_list(batch, row, config)];
  }
  CHECK(drawn.size() == train.size());  // 6,400 draws of 550 miss none of them
  for (const auto& [list, count] : drawn) CHECK(train.contains(list));
}

TEST_CASE("many lists are sampled, with the same rule for held-out ones", "[sort]") {
  const ListTask config{.length = 10, .digits = 10};
  const ListDataset dataset(config);
  CHECK_FALSE(dataset.is_exhaustive());
  CHECK(dataset.list_count(Split::validation) == 10'000);
  for (const auto& list : all_lists(dataset, Split::validation, config)) REQUIRE(ListDataset::is_held_out(list));
  for (const auto& list : all_lists(dataset, Split::train, config)) REQUIRE_FALSE(ListDataset::is_held_out(list));
  std::set<List> drawn;
  const auto batch = dataset.random_rows(1, 3, 0, 2000);
  for (std::int64_t row = 0; row < batch.rows; ++row)
    REQUIRE_FALSE(ListDataset::is_held_out(*drawn.insert(checked_list(batch, row, config)).first));
  CHECK(drawn.size() == 2000);
  // Fewer long lists are evaluated.
  CHECK(ListDataset({.copies = true, .length = 511, .digits = 127}).list_count(Split::validation) == 1025);
  CHECK(ListDataset({.length = 4000, .digits = 10}).list_count(Split::validation) == 131);
}

TEST_CASE("a row is a function of seed, step and row", "[sort]") {
  const ListTask config = GENERATE(ListTask{.length = 6, .digits = 3}, ListTask{.length = 10, .digits = 10});
  const ListDataset dataset(config), again(config);
  const auto whole = dataset.random_rows(7, 11, 0, 12).ids;
  auto parts = again.random_rows(7, 11, 0, 5).ids;
  const auto rest = again.random_rows(7, 11, 5, 7).ids;
  parts.insert(parts.end(), rest.begin(), rest.end());
  CHECK(whole == parts);
  CHECK(whole != dataset.random_rows(7, 12, 0, 12).ids);
  CHECK(whole != dataset.random_rows(8, 11, 0, 12).ids);
}

TEST_CASE("a copied list is between zeros, and only its second copy has targets", "[copy]") {
  const ListTask task{.copies = true, .length = 5, .digits = 40};
  const ListDataset dataset(task);
  for (const auto& batch : {dataset.random_rows(3, 1, 0, 50), dataset.rows(Split::test, 0, 50)}) {
    REQUIRE(batch.length == 11);
    REQUIRE(batch.target_count == 250);
    for (std::int64_t row = 0; row < 50; ++row) {
      const List ids(batch.ids.begin() + row * 11, batch.ids.begin() + row * 11 + 11);
      const List targets(batch.targets.begin() + row * 11, batch.targets.begin() + row * 11 + 11);
      CHECK(ids[0] == 0);
      CHECK(ids[6] == 0);
      for (std::size_t i = 0; i < 5; ++i) {
        CHECK((ids[1 + i] >= 1 && ids[1 + i] <= 40));
        if (i < 4) CHECK(ids[7 + i] == ids[1 + i]);
        CHECK(targets[i] == -1);
        CHECK(targets[6 + i] == ids[1 + i]);
      }
      CHECK(targets[5] == -1);
    }
  }
}

TEST_CASE("a prompt of the wrong length or with a separator is refused, as are too few lists", "[copy]") {
  const ListTask copies{.copies = true, .length = 3, .digits = 4}, sorts{.length = 3, .digits = 4};
  CHECK(list_prompt(copies, {3, 1, 4}) == List{0, 3, 1, 4, 0});
  CHECK(list_prompt(sorts, {3, 0, 2}) == List{3, 0, 2});
  CHECK(list_answer(copies, {3, 1, 4}) == List{3, 1, 4});
  CHECK(list_answer(sorts, {3, 0, 2}) == List{0, 2, 3});
  CHECK_THROWS_WITH(list_prompt(copies, {3, 0, 4}), Mentions("0 stands between|1 ... 4"));
  CHECK_THROWS_WITH(list_prompt(copies, {3, 1}), Mentions("2 numbers|3"));
  const ListTask few{.length = 1, .digits = 2};
  CHECK_THROWS_WITH(ListDataset(few), ContainsSubstring("task.length, task.digits: 2 lists"));
  CHECK_THROWS_WITH(ListDataset(few, "data.synthetic.length"), ContainsSubstring("data.synthetic.length: 2 lists"));
}

}  // namespace metaformer::test_list_dataset
