// Catches: the name of a driver that is taken for another model's, a name or a number of GiB that
// --gpu reads wrongly, a rate that is one with sparsity or in another unit, a fused GELU where it
// is slow or inexact.
#include "runtime/cuda/plan/gpu_models.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "launcher/forecast/gpu_option.h"
#include "runtime/base/error.h"
#include "runtime/cuda/plan/fused_gelu.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

TEST(GpuModels, NamesOfDrivers) {
  for (const auto& [driver, name] :
       {std::pair("NVIDIA H100 80GB HBM3", "H100"),
        {"NVIDIA H100 PCIe", "H100-PCIe"},
        {"NVIDIA H100 NVL", "H100-NVL"},
        {"NVIDIA H800", "H800"},
        {"NVIDIA H800 PCIe", "H800-PCIe"},
        {"NVIDIA H200", "H200"},
        {"NVIDIA H200 NVL", "H200-NVL"},
        {"NVIDIA H20", "H20"},
        {"NVIDIA GH200 480GB", "GH200"},
        {"NVIDIA A100-SXM4-40GB", "A100-40GB"},
        {"NVIDIA A100-PCIE-40GB", "A100-40GB"},
        {"NVIDIA A100-SXM4-80GB", "A100-80GB"},
        {"NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"},
        {"NVIDIA A800-SXM4-80GB", "A800-80GB"},
        {"NVIDIA A10", "A10"},
        {"NVIDIA A10G", "A10G"},
        {"NVIDIA A16", "A16"},
        {"NVIDIA A40", "A40"},
        {"NVIDIA L4", "L4"},
        {"NVIDIA L40", "L40"},
        {"NVIDIA L40S", "L40S"},
        {"NVIDIA B200", "B200"},
        {"NVIDIA GB200", "GB200"},
        {"NVIDIA B300 SXM6 AC", "B300"},
        {"NVIDIA GB300", "GB300"},
        {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-Server"},
        {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX-PRO-6000-Workstation"},
        {"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX-PRO-6000-Max-Q"},
        {"NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"},
        {"NVIDIA RTX A6000", "RTX-A6000"},
        {"NVIDIA GeForce RTX 5090", "RTX-5090"},
        {"NVIDIA GeForce RTX 5080", "RTX-5080"},
        {"NVIDIA GeForce RTX 4090", "RTX-4090"},
        {"NVIDIA GeForce RTX 4080", "RTX-4080"},
        {"NVIDIA GeForce RTX 4070", "RTX-4070"},
        {"NVIDIA GeForce RTX 3090", "RTX-3090"}}) {
    const cuda::GpuModel* model = cuda::find_gpu_model(driver);
    ASSERT_NE(model, nullptr) << driver;
    EXPECT_STREQ(model->name, name) << driver;
    EXPECT_EQ(planned_gpu(driver).model, model) << driver;
    EXPECT_EQ(planned_gpu(name).model, model) << name;
  }
}

TEST(GpuModels, OtherGpusAreUnknown) {
  for (const char* driver : {"",
                             "Tesla V100-SXM2-32GB",
                             "Quadro RTX 6000",
                             "NVIDIA RTX A4000",
                             "NVIDIA A100-SXM-64GB",
                             "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
                             "NVIDIA H20-3e",
                             "NVIDIA RTX PRO 6000D Blackwell Workstation Edition",
                             "NVIDIA GeForce RTX 4090 D",
                             "NVIDIA GeForce RTX 4090 Laptop GPU",
                             "NVIDIA GeForce RTX 3090 Ti",
                             "NVIDIA GeForce RTX 4080 SUPER",
                             "NVIDIA GeForce RTX 4070 Ti SUPER"})
    EXPECT_EQ(cuda::find_gpu_model(driver), nullptr) << driver;
}

// Relations that hold for every model: tensor cores double their rate from TF32 to 16 bits, and an
// SM has 64 or 128 fused multiply-adds a cycle, at 1 to 2.7 GHz.
TEST(GpuModels, RatesAreDense) {
  for (const cuda::GpuModel& model : cuda::gpu_models()) {
    EXPECT_GE(model.tf32, model.fp32 * 0.99) << model.name;
    EXPECT_NEAR(model.half / model.tf32, 2, 0.06) << model.name;
    const int lanes = model.capability == 80 ? 64 : 128;
    const double ghz = model.fp32 * 1e3 / (2.0 * lanes * model.multiprocessors);
    EXPECT_GT(ghz, 1) << model.name;
    EXPECT_LT(ghz, 2.7) << model.name;
    EXPECT_GE(model.capability, 80) << model.name;
    EXPECT_LE(model.capability, 121) << model.name;
    // Operations for each byte: a rate of the wrong unit, or with sparsity, is far from these.
    EXPECT_GT(model.half * 1e3 / model.gbytes_per_s, 30) << model.name;
    EXPECT_LT(model.half * 1e3 / model.gbytes_per_s, 450) << model.name;
  }
  const cuda::GpuModel& h100 = *cuda::find_gpu_model("NVIDIA H100 80GB HBM3");
  EXPECT_DOUBLE_EQ(cuda::peak_flops(h100, DType::kBF16, false), 989.4e12);
  EXPECT_DOUBLE_EQ(cuda::peak_flops(h100, DType::kF32, true), 494.7e12);
  EXPECT_DOUBLE_EQ(cuda::peak_flops(h100, DType::kF32, false), 67e12);
}

TEST(GpuModels, NamesAndGiB) {
  EXPECT_GT(planned_gpu("H200").run_bytes, 130 * kGiB);
  EXPECT_LT(planned_gpu("H200").run_bytes, 141 * kGiB);
  EXPECT_LT(planned_gpu("A100-40GB").run_bytes, 40 * kGiB);
  EXPECT_EQ(planned_gpu("24").run_bytes, kGiB * 24 - kGiB * 3 / 2);
  EXPECT_EQ(planned_gpu("24").model, nullptr);
  EXPECT_EQ(planned_gpu("2.5").run_bytes, kGiB);
}

TEST(GpuModels, RefusesTheRest) {
  for (const char* name : {"",
                           "h200",
                           "A100",
                           "1.5",
                           "-3",
                           "24GB",
                           "nan",
                           "inf",
                           "1e9",
                           "4090",
                           "1000.5",
                           "RTX 4090 D",
                           "NVIDIA GeForce RTX 3090 Ti"}) {
    try {
      planned_gpu(name);
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("A100-80GB"), std::string::npos) << error.what();
    }
  }
}

// A number alone, as of an RTX 4090, is a name and no memory.
TEST(GpuModels, SuggestsTheName) {
  for (const auto& [given, name] : {std::pair("4090", "RTX-4090"),
                                    {"h200", "H200"},
                                    {"80GB", "80"},
                                    {"H100 SXM5", "H100"},
                                    {"A100-SXM4-80GB", "A100-80GB"}}) {
    try {
      planned_gpu(given);
      ADD_FAILURE() << given;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("did you mean {}", name)),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(GpuModels, GeluIsFusedOnHopperAlone) {
  for (const DType half : {DType::kBF16, DType::kF16}) {
    EXPECT_TRUE(cuda::fuses_gelu(90, half));
    for (const int capability : {0, 80, 86, 89, 100, 103, 120, 121})
      EXPECT_FALSE(cuda::fuses_gelu(capability, half)) << capability;
  }
  for (const int capability : {80, 90, 100, 120})
    EXPECT_FALSE(cuda::fuses_gelu(capability, DType::kF32)) << capability;
}

}  // namespace
}  // namespace lockstep::launcher
