"""Question: how does a control-plane function answer, an MME that UEs attach to above all."""
