"""The names of the ops that have a rule, for processes without JAX: those of `ops.TABLE`, which a test compares.

`python scripts/step_coverage.py --names` writes this file. Python 3.7, no JAX.
"""

from __future__ import annotations

TEXT = """
    Abs AccumulateNV2 Acos Acosh Add AddN AddV2 AdjustContrastv2 AdjustHue AdjustSaturation All Angle Any
    ApplyAdaMax ApplyAdadelta ApplyAdagrad ApplyAdagradDA ApplyAdagradV2 ApplyAdam ApplyAdamWithAmsgrad
    ApplyAddSign ApplyCenteredRMSProp ApplyFtrl ApplyFtrlV2 ApplyGradientDescent ApplyKerasMomentum
    ApplyMomentum ApplyPowerSign ApplyProximalAdagrad ApplyProximalGradientDescent ApplyRMSProp ApproximateEqual
    ArgMax ArgMin Asin Asinh Assert Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp
    AssignVariableOp Atan Atan2 Atanh AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BatchMatMul BatchMatMulV2
    BatchMatMulV3 BatchToSpace BatchToSpaceND BesselI0e BesselI1e Betainc BiasAdd BiasAddGrad BiasAddV1 Bincount
    Bitcast BitwiseAnd BitwiseOr BitwiseXor BlockLSTM BlockLSTMGrad BlockLSTMGradV2 BlockLSTMV2 BroadcastArgs
    BroadcastGradientArgs BroadcastTo Bucketize CTCGreedyDecoder CTCLoss CTCLossV2 Case Cast Ceil CheckNumerics
    CheckNumericsV2 Cholesky CholeskyGrad ClipByValue CollectiveAllToAllV2 CollectiveGather CollectiveReduce
    Complex ComplexAbs Concat ConcatOffset ConcatV2 Conj ConjugateTranspose Const ControlTrigger Conv2D
    Conv2DBackpropFilter Conv2DBackpropInput Conv3D Conv3DBackpropFilterV2 Conv3DBackpropInputV2 Copy CopyHost
    Cos Cosh CountUpTo CropAndResize CropAndResizeGradBoxes CropAndResizeGradImage Cross Cumprod Cumsum
    CumulativeLogsumexp DataFormatDimMap DataFormatVecPermute DebugGradientIdentity DeepCopy DenseBincount
    DenseToDenseSetOperation DepthToSpace DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
    DepthwiseConv2dNativeBackpropInput DeviceIndex Diag DiagPart Digamma Dilation2D Dilation2DBackpropFilter
    Dilation2DBackpropInput Div DivNoNan DynamicPartition DynamicStitch Einsum Elu EluGrad Empty EmptyTensorList
    EnsureShape Enter Equal Erf Erfc Erfinv EuclideanNorm Exit Exp ExpandDims Expm1 ExtractImagePatches FFT
    FFT2D FFT3D FakeParam FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars
    FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient
    Fill Floor FloorDiv FloorMod FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3
    FusedBatchNormV2 FusedBatchNormV3 GRUBlockCell GRUBlockCellGrad Gather GatherNd GatherV2 Greater
    GreaterEqual HSVToRGB IFFT IFFT2D IFFT3D IRFFT IRFFT2D IRFFT3D Identity IdentityN If Igamma IgammaGradA
    Igammac Imag ImageProjectiveTransformV2 ImageProjectiveTransformV3 InTopK InTopKV2 Inv InvGrad Invert
    InvertPermutation IsFinite IsInf IsNan IsVariableInitialized L2Loss LRN LRNGrad LSTMBlockCell
    LSTMBlockCellGrad LeakyRelu LeakyReluGrad LeftShift Less LessEqual Lgamma LinSpace ListDiff Log Log1p
    LogMatrixDeterminant LogSoftmax LogicalAnd LogicalNot LogicalOr LoopCond LowerBound MatMul MatrixBandPart
    MatrixDeterminant MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3
    MatrixInverse MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MatrixSolve MatrixTriangularSolve Max MaxPool
    MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradV2
    MaxPoolGradWithArgmax MaxPoolV2 MaxPoolWithArgmax Maximum Mean Merge Min Minimum MirrorPad MirrorPadGrad Mod
    Mul MulNoNan Multinomial Ndtri Neg NextAfter NextIteration NoOp NonMaxSuppression NonMaxSuppressionV2
    NonMaxSuppressionV3 NonMaxSuppressionV4 NotEqual NpuShimAttention NpuShimDropoutSeed OneHot OnesLike
    OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone Pack Pad PadV2 ParallelConcat
    ParallelDynamicStitch PartitionedCall Placeholder PlaceholderV2 PlaceholderWithDefault Polygamma
    PopulationCount Pow PreventGradient Print PrintV2 Prod Qr QuantizeAndDequantizeV2 QuantizeAndDequantizeV3
    QuantizeAndDequantizeV4 QuantizeAndDequantizeV4Grad RFFT RFFT2D RFFT3D RGBToHSV RandomGamma RandomGammaGrad
    RandomPoisson RandomPoissonV2 RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt Range Rank
    ReadVariableOp Real RealDiv Reciprocal ReciprocalGrad RefEnter RefExit RefIdentity RefMerge RefNextIteration
    RefSwitch Relu Relu6 Relu6Grad ReluGrad Reshape ResizeBicubic ResizeBicubicGrad ResizeBilinear
    ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad ResourceApplyAdaMax ResourceApplyAdadelta
    ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2 ResourceApplyAdam
    ResourceApplyAdamWithAmsgrad ResourceApplyAddSign ResourceApplyCenteredRMSProp ResourceApplyFtrl
    ResourceApplyFtrlV2 ResourceApplyGradientDescent ResourceApplyKerasMomentum ResourceApplyMomentum
    ResourceApplyPowerSign ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent
    ResourceApplyRMSProp ResourceCountUpTo ResourceGather ResourceGatherNd ResourceScatterAdd ResourceScatterDiv
    ResourceScatterMax ResourceScatterMin ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdMax
    ResourceScatterNdMin ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate
    ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA
    ResourceSparseApplyAdagradV2 ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl
    ResourceSparseApplyFtrlV2 ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum
    ResourceSparseApplyProximalAdagrad ResourceSparseApplyProximalGradientDescent ResourceSparseApplyRMSProp
    ResourceStridedSliceAssign Reverse ReverseSequence ReverseV2 RightShift Rint Roll Round Rsqrt RsqrtGrad
    ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul ScatterNd ScatterNdAdd ScatterNdMax ScatterNdMin
    ScatterNdNonAliasingAdd ScatterNdSub ScatterNdUpdate ScatterSub ScatterUpdate SegmentMax SegmentMaxV2
    SegmentMean SegmentMin SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum SegmentSumV2 Select SelectV2
    SelfAdjointEigV2 Selu SeluGrad Shape ShapeN Sigmoid SigmoidGrad Sign Sin Sinh Size Slice Snapshot Softmax
    SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad SpaceToBatch SpaceToBatchND
    SpaceToDepth SparseAdd SparseAddGrad SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradDA
    SparseApplyAdagradV2 SparseApplyCenteredRMSProp SparseApplyFtrl SparseApplyFtrlV2 SparseApplyKerasMomentum
    SparseApplyMomentum SparseApplyProximalAdagrad SparseApplyProximalGradientDescent SparseApplyRMSProp
    SparseConcat SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul SparseFillEmptyRows
    SparseFillEmptyRowsGrad SparseMatMul SparseReduceMax SparseReduceSum SparseReorder SparseReshape
    SparseSegmentMean SparseSegmentMeanGrad SparseSegmentMeanGradV2 SparseSegmentMeanWithNumSegments
    SparseSegmentSqrtN SparseSegmentSqrtNGrad SparseSegmentSqrtNGradV2 SparseSegmentSqrtNWithNumSegments
    SparseSegmentSum SparseSegmentSumGrad SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments SparseSlice
    SparseSliceGrad SparseSoftmax SparseSoftmaxCrossEntropyWithLogits SparseSplit SparseTensorDenseAdd
    SparseTensorDenseMatMul SparseToDense Split SplitV Sqrt SqrtGrad Square SquaredDifference Squeeze
    StackCloseV2 StackPopV2 StackPushV2 StackV2 StatefulPartitionedCall StatelessCase StatelessIf
    StatelessMultinomial StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomGetAlg
    StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomNormal StatelessRandomNormalV2
    StatelessRandomPoisson StatelessRandomUniform StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2
    StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessTruncatedNormal
    StatelessTruncatedNormalV2 StatelessWhile StopGradient StridedSlice StridedSliceAssign StridedSliceGrad Sub
    Sum Svd Switch Tan Tanh TanhGrad TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3
    TensorArrayGradV3 TensorArrayGradWithShape TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3
    TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3 TensorListConcat TensorListConcatV2
    TensorListElementShape TensorListFromTensor TensorListGather TensorListGetItem TensorListLength
    TensorListPopBack TensorListPushBack TensorListReserve TensorListResize TensorListScatter
    TensorListScatterIntoExistingList TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack
    TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate
    TensorStridedSliceUpdate Tile TopK TopKV2 Transpose TridiagonalMatMul TridiagonalSolve TruncateDiv
    TruncateMod TruncatedNormal Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack UnsortedSegmentMax
    UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum UpperBound VarHandleOp VarIsInitializedOp Variable
    VariableShape VariableV2 Where While Xdivy XlaOptimizationBarrier Xlog1py Xlogy ZerosLike Zeta _Arg
"""
NAMES = frozenset(TEXT.split())
