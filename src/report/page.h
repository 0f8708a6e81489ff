#pragma once
// The report as one HTML file that loads nothing else.

#include <nlohmann/json.hpp>
#include <string>

namespace metaformer {

// `data`: what the scripts in report/page read. Text in it may be any: markup in it stays text.
std::string make_page(const std::string& title, const nlohmann::ordered_json& data);

}  // namespace metaformer
