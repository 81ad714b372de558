{{- define "shardmill.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "shardmill.selector" -}}
app.kubernetes.io/name: shardmill
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "shardmill.labels" -}}
{{ include "shardmill.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | quote }}
{{- end -}}
