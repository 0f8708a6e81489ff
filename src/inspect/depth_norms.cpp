#include "inspect/depth_norms.h"

namespace metaformer {

void DepthNorms::add(StreamPoint point, double norm) {
  switch (point) {
    case StreamPoint::embedding:
      embedding = norm;
      break;
    case StreamPoint::mixer_branch:
      mixer_branch.push_back(norm);
      break;
    case StreamPoint::after_mixer:
      after_mixer.push_back(norm);
      break;
    case StreamPoint::cross_branch:
      cross_branch.push_back(norm);
      break;
    case StreamPoint::after_cross:
      after_cross.push_back(norm);
      break;
    case StreamPoint::feed_forward_branch:
      feed_forward_branch.push_back(norm);
      break;
    case StreamPoint::after_feed_forward:
      after_feed_forward.push_back(norm);
      break;
    case StreamPoint::output:
      output = norm;
      break;
  }
}

nlohmann::ordered_json to_json(const DepthNorms& norms) {
  nlohmann::ordered_json json = {
      {"embedding", norms.embedding}, {"mixer_branch", norms.mixer_branch}, {"after_mixer", norms.after_mixer}};
  if (!norms.cross_branch.empty()) json["cross_branch"] = norms.cross_branch;
  if (!norms.after_cross.empty()) json["after_cross"] = norms.after_cross;
  json["feed_forward_branch"] = norms.feed_forward_branch;
  json["after_feed_forward"] = norms.after_feed_forward;
  json["output"] = norms.output;
  return json;
}

}  // namespace metaformer
