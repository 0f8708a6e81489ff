#include "huggingface/numpy_archive.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/zip_writer.h"

namespace metaformer {

namespace {

const char* type_of(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat:
      return "<f4";
    case torch::kDouble:
      return "<f8";
    case torch::kHalf:
      return "<f2";
    case torch::kLong:
      return "<i8";
    case torch::kInt:
      return "<i4";
    default:
      throw Error(ExitCode::failure, fmt::format("NumPy has no type for {}", c10::toString(tensor.scalar_type())));
  }
}

// The header of an .npy file, version 1.0 (NEP 1): a Python literal, padded to 64 bytes.
std::string header_of(const torch::Tensor& tensor) {
  constexpr std::size_t alignment = 64, before = 10;
  std::string shape;
  for (const auto size : tensor.sizes()) shape += fmt::format("{},", size);
  auto literal = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({})}}", type_of(tensor), shape);
  literal.append(alignment - 1 - (before + literal.size()) % alignment, ' ');
  literal += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(literal.size() & 0xFF);
  header += static_cast<char>(literal.size() >> 8);
  return header + literal;
}

}  // namespace

void write_npz(const std::filesystem::path& path, const NamedTensors& tensors) {
  ZipWriter archive(path);
  for (const auto& [name, tensor] : tensors) {
    const auto plain = tensor.detach().to(torch::kCPU).contiguous();
    archive.add(name + ".npy", {header_of(plain), {static_cast<const char*>(plain.data_ptr()), plain.nbytes()}});
  }
  archive.finish();
}

}  // namespace metaformer
