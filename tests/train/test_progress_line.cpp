#include "support/catch.h"
#include "train/training_log.h"

namespace metaformer {

TEST_CASE("the progress line shows a moving mean, and counts coming evaluations in the time left", "[progress]") {
  TrainConfig config;
  config.steps = 105;
  config.eval_interval = 10;
  ProgressLine line(config, 1000);
  CHECK(line.text(50, 1e-3, 0) == "step 50/105  lr 1.00e-03");
  line.add_losses(4, 1);
  CHECK(line.text(50, 1e-3, 0.1) == "step 50/105  loss 4.0000  lr 1.00e-03  10.0k tokens/s  ETA 6s");
  line.add_evaluation(9);
  line.add_evaluation(11);
  CHECK_THAT(line.text(50, 1e-3, 0.1), ContainsSubstring("10.0k tokens/s  ETA 1m06s"));  // 60, 70, 80, 90, 100 and 105
  CHECK_THAT(line.text(105, 1e-3, 0.1), ContainsSubstring("ETA 0s"));
  for (int step = 0; step < 1000; ++step) line.add_losses(2, 1);
  CHECK_THAT(line.text(50, 1e-3, 0), ContainsSubstring("loss 2.0000"));
  line.add_losses(3, 1);
  CHECK_THAT(line.text(50, 1e-3, 0), ContainsSubstring("loss 2.0200"));
  ProgressLine together(config, 1000);
  together.add_losses(6, 2);
  CHECK_THAT(together.text(50, 1e-3, 0), ContainsSubstring("loss 3.0000"));
}

}  // namespace metaformer
