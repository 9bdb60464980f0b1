// Catches: a hardware file that does not parse or has a figure without a source, a file that does
// not read back as written, the name of a driver that is taken for another GPU's, a name or a
// number of GiB that --on reads wrongly, a rate that is one with sparsity or in another unit, a
// price or a link of hardware that is not there, a fused GELU where it is slow or inexact.
#include "runtime/config/hardware.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "launcher/forecast/hardware_option.h"
#include "launcher/forecast/op_times.h"
#include "runtime/base/error.h"
#include "runtime/cuda/plan/fused_gelu.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

TEST(Hardware, NamesOfDrivers) {
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
    const Hardware* gpu = config::find_gpu(driver);
    ASSERT_NE(gpu, nullptr) << driver;
    EXPECT_EQ(gpu->name, name) << driver;
    EXPECT_EQ(planned_hardware("--on", driver).hardware, *gpu) << driver;
    EXPECT_EQ(planned_hardware("--on", name).hardware, *gpu) << name;
  }
}

TEST(Hardware, OtherGpusAreUnknown) {
  for (const char* driver : {"",
                             "Quadro GV100",
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
    EXPECT_EQ(config::find_gpu(driver), nullptr) << driver;
}

// Relations that hold for every GPU with tensor cores for BF16: they double their rate from TF32 to
// 16 bits, and an SM has 64 or 128 fused multiply-adds a cycle, at 1 to 2.7 GHz.
TEST(Hardware, RatesAreDense) {
  for (const Hardware& gpu : config::known_hardware()) {
    if (gpu.kind != Hardware::Kind::kGpu || gpu.bf16_tflops == 0) continue;
    EXPECT_GE(gpu.tf32_tflops, gpu.fp32_tflops * 0.99) << gpu.name;
    EXPECT_NEAR(gpu.bf16_tflops / gpu.tf32_tflops, 2, 0.06) << gpu.name;
    EXPECT_EQ(gpu.bf16_tflops, gpu.fp16_tflops) << gpu.name;
    const double lanes = gpu.gpu.capability == 80 ? 64 : 128;
    const double ghz =
        gpu.fp32_tflops * 1e3 / (2 * lanes * static_cast<double>(gpu.gpu.multiprocessors));
    EXPECT_GT(ghz, 1) << gpu.name;
    EXPECT_LT(ghz, 2.7) << gpu.name;
    EXPECT_GE(gpu.gpu.capability, 80) << gpu.name;
    EXPECT_LE(gpu.gpu.capability, 121) << gpu.name;
    // Operations for each byte: a rate of the wrong unit, or with sparsity, is far from these.
    EXPECT_GT(gpu.bf16_tflops * 1e3 / gpu.memory_gbytes_per_s, 30) << gpu.name;
    EXPECT_LT(gpu.bf16_tflops * 1e3 / gpu.memory_gbytes_per_s, 450) << gpu.name;
  }
  const Hardware& h100 = *config::find_gpu("NVIDIA H100 80GB HBM3");
  const forecast::Arithmetic tf32{.tf32 = true};
  EXPECT_DOUBLE_EQ(forecast::peak_flops(h100, {}, DType::kBF16), 989.4e12);
  EXPECT_DOUBLE_EQ(forecast::peak_flops(h100, tf32, DType::kF32), 494.7e12);
  EXPECT_DOUBLE_EQ(forecast::peak_flops(h100, {}, DType::kF32), 67e12);
}

TEST(Hardware, LinksAndPricesAreOfKnownHardware) {
  for (const Hardware& hardware : config::known_hardware()) {
    for (const std::string& link : {hardware.link, hardware.network}) {
      if (link.empty()) continue;
      EXPECT_EQ(config::find_link(hardware, link).name, link) << hardware.name;
    }
  }
  for (const Link& link : config::known_links()) {
    EXPECT_GT(link.gbytes_per_s, 0) << link.name;
    EXPECT_FALSE(link.from.empty() || link.date.empty()) << link.name;
  }
  for (const Price& price : config::known_prices()) {
    EXPECT_NE(config::find_hardware(price.hardware), nullptr) << price.hardware;
    EXPECT_FALSE(price.from.empty() || price.date.empty()) << price.hardware;
  }
}

TEST(Hardware, ReadsBackAsWritten) {
  for (const Hardware& hardware : config::known_hardware())
    EXPECT_EQ(config::parse_hardware(config::to_text(hardware), "text"), hardware) << hardware.name;
}

TEST(Hardware, FiguresHaveOneSource) {
  constexpr const char* kRest = "name: 'x' memory_gbytes_per_s: 1 watts: 2 ";
  const auto message = [](const std::string& text) -> std::string {
    try {
      config::parse_hardware(text, "x.textproto");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const auto source = [](const std::string& figures) {
    return "sources { figures: [" + figures + "] from: 'a page' date: '2026-11' }";
  };
  EXPECT_EQ(message(kRest + source("'watts', 'memory_gbytes_per_s'")), "");
  for (const auto& [figures, word] : {std::pair("'watts'", "memory_gbytes_per_s has 0 sources"),
                                      {"'watts', 'watts', 'memory_gbytes_per_s'", "watts has 2"},
                                      {"'watts', 'memory_gbytes_per_s', 'device'", "'device'"}})
    EXPECT_NE(message(kRest + source(figures)).find(word), std::string::npos)
        << message(kRest + source(figures));
  EXPECT_NE(message("name: 'x' memory: 1").find("a hardware file"), std::string::npos)
      << message("name: 'x' memory: 1");
}

TEST(Hardware, NamesAndGiB) {
  EXPECT_GT(planned_hardware("--on", "H200").device_bytes, 130 * kGiB);
  EXPECT_LT(planned_hardware("--on", "H200").device_bytes, 141 * kGiB);
  EXPECT_LT(planned_hardware("--on", "A100-40GB").device_bytes, 40 * kGiB);
  EXPECT_EQ(planned_hardware("--on", "24").device_bytes, kGiB * 24 - kGiB * 3 / 2);
  EXPECT_EQ(planned_hardware("--on", "24").described, false);
  EXPECT_EQ(planned_hardware("--on", "2.5").device_bytes, kGiB);
}

TEST(Hardware, RefusesTheRest) {
  for (const char* name : {"",
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
      planned_hardware("--on", name);
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("A100-80GB"), std::string::npos) << error.what();
    }
  }
}

// A number alone, as of an RTX 4090, is a name and no memory.
TEST(Hardware, SuggestsTheName) {
  for (const auto& [given, name] : {std::pair("4090", "RTX-4090"),
                                    {"80GB", "80"},
                                    {"H100 SXM5", "H100"},
                                    {"A100-SXM4-80GB", "A100-80GB"}}) {
    try {
      planned_hardware("--on", given);
      ADD_FAILURE() << given;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("did you mean {}", name)),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(Hardware, GeluIsFusedOnHopperAlone) {
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
